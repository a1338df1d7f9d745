"""Operators of the rehearsal device: checked by CUDA's rules, counted, computed on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from rehearsal import nccl, rules
from rehearsal.card import Card, RaceError, Submitted
from rehearsal.generator import check_generator
from rehearsal.session import Rehearsal, current
from rehearsal.tensor import RehearsedTensor, host_of, map_tensors, tensors_in

CPU = torch.device("cpu")
HALVES = {torch.float16, torch.bfloat16}

SYNCHRONISING = frozenset(
    {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "unique_consecutive"}
    | {"_unique2", "_unique", "unique_dim_consecutive", "bincount", "repeat_interleave"}
)
"""Operators whose result, or its size, the host must know before it can go on."""
ALLOCATING = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_"})
NOT_LAUNCHED = ALLOCATING | {"_unsafe_view", "_local_scalar_dense", "is_same_size", "is_pinned", "record_stream"}


def fallback(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Kernel of every operator on CUDA: reached by those that make a tensor from none, such as torch.empty."""
    return dispatch(func, args, kwargs)


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one operator that touches the device: check it, count it, compute it on the CPU."""
    rehearsal = current()
    if func.namespace == "c10d":
        return nccl.collective(func, args, kwargs)
    name = func.overloadpacket.__name__
    tensors = tensors_in(args, kwargs)
    card = _card(rehearsal, tensors, kwargs.get("device"))
    _check(func, name, tensors, args, kwargs)
    card.finish_collectives()
    if (special := SPECIAL.get(name)) is not None:
        return special(rehearsal, card, func, args, kwargs)
    _count(rehearsal, card, func, name, tensors, args, kwargs)
    return compute(card, func, args, kwargs)


def compute(card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator's result, computed on the CPU and put on the card."""
    host_args, host_kwargs = map_tensors(host_of, args), map_tensors(host_of, kwargs)
    if func.overloadpacket.__name__ in ("_softmax", "_log_softmax") and host_args[2]:
        # From float16 to float32 in one kernel, which only CUDA has.
        host_args = (host_args[0].float(), host_args[1], False)
    if host_kwargs.get("device") is not None:
        host_kwargs["device"] = CPU
    if torch.Tag.nondeterministic_seeded in func.tags:
        with card.random_numbers():
            result = func(*host_args, **host_kwargs)
    elif _is_half_product(func, host_args):
        result = _half_product(func, host_args, host_kwargs)
    else:
        result = func(*host_args, **host_kwargs)
    result = map_tensors(lambda tensor: RehearsedTensor(tensor, card), result)
    for value in (*args[:1], *kwargs.values()):
        if isinstance(value, RehearsedTensor) and value.shape != value.host.shape and not _is_view(func):
            # The operator gave its out= (or itself, if resize_) another shape.
            value.become(RehearsedTensor(value.host, card))
    return return_and_correct_aliasing(func, args, kwargs, result)  # type: ignore[no-untyped-call]


def _is_half_product(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this multiplies matrices of one half precision; mixed dtypes are refused, by the CPU as by CUDA."""
    if func.overloadpacket.__name__ not in rules.CUBLAS:
        return False
    dtypes = {tensor.dtype for tensor in tensors_in(args)}
    return len(dtypes) == 1 and dtypes <= HALVES


def _half_product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """A matrix product of half precision: float32 inside and rounded once, as cuBLAS does.

    The CPU's own half-precision product takes up to 40 times as long as float32's, and it has none with out_dtype.
    """
    packet, out, dtype = func.overloadpacket, kwargs.pop("out", None), args[0].dtype
    if isinstance(args[-1], torch.dtype):
        *args, dtype = args  # type: ignore[assignment]
    if out is not None and out.dtype != dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {dtype}, but got {out.dtype} instead")
    product: torch.Tensor = packet.default(*map_tensors(torch.Tensor.float, args), **kwargs)
    return product.to(dtype) if out is None else out.copy_(product)


def _card(rehearsal: Rehearsal, tensors: Sequence[torch.Tensor], device: Any) -> Card:
    """The card that computes: the one asked for, else that of the first tensor on a card."""
    if device is not None and torch.device(device).type == "cuda":
        return rehearsal.card(device)
    return rehearsal.card(next((tensor.device for tensor in tensors if tensor.is_cuda), None))


def _check(func: Any, name: str, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name in rules.INDEXING:
        values = args[2] if len(args) > 2 and isinstance(args[2], torch.Tensor) else None
        rules.check_indices(args[0], args[1], values)
    elif name not in rules.CROSSING and tensors:
        rules.check_same_device(func, tensors)
    check_generator(kwargs.get("generator"))
    if torch.are_deterministic_algorithms_enabled():
        rules.check_deterministic(name, args, kwargs)


def _count(
    rehearsal: Rehearsal,
    card: Card,
    func: Any,
    name: str,
    tensors: list[torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    counts = rehearsal.counts
    if name in SYNCHRONISING and not (name == "repeat_interleave" and kwargs.get("output_size") is not None):
        card.synchronise(name)
    if name in rules.INDEXING and not _is_masked_fill(args):
        for index in filter(None.__ne__, args[1]):
            if not index.is_cuda:
                counts.copies[f"H2D pageable index {counts.place()}"] += 1
                card.synchronise("index from the host")
            elif index.dtype in (torch.bool, torch.uint8):
                card.synchronise("boolean index")
    if name in NOT_LAUNCHED or _is_view(func):
        return
    counts.launches[name] += 1
    if any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors if tensor.is_cuda):
        counts.slow[f"{name} {counts.place()}"] += 1


def _is_masked_fill(args: tuple[Any, ...]) -> bool:
    """Whether x[mask] = number, which needs no indices (canDispatchToMaskedFill in TensorAdvancedIndexingUtils.h)."""
    masks = [index for index in args[1] if index is not None]
    is_number = len(args) > 2 and args[2].numel() == 1 and not args[2].is_cuda and not any(args[3:4])
    return is_number and len(masks) == 1 and masks[0].is_cuda and masks[0].dtype in (torch.bool, torch.uint8)


_VIEWS: dict[Any, bool] = {}


def _is_view(func: Any) -> bool:
    """Whether the operator's schema says that its result aliases an argument that it does not write."""
    if func not in _VIEWS:
        aliases = [result.alias_info for result in func._schema.returns]
        _VIEWS[func] = any(alias is not None and not alias.is_write for alias in aliases)
    return _VIEWS[func]


# Copies


def _to_copy(rehearsal: Rehearsal, card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Tensor.to, .cpu() and casts, from a card to itself, to another card or to the host."""
    source, target = args[0], kwargs.get("device")
    counts = rehearsal.counts
    if target is None or torch.device(target).type == "cuda":
        counts.launches["_to_copy"] += 1
        if source.device != card.device:
            counts.copies[f"D2D {counts.place()}"] += 1
        return compute(card, func, args, kwargs)
    non_blocking = kwargs.get("non_blocking", False)
    # The target of a non-blocking copy to the host is pinned memory (_to_copy in ATen/native/TensorConversions.cpp).
    values = func(source.host, **kwargs)
    result = values.pin_memory() if non_blocking else values
    if result.dtype != source.dtype:
        counts.launches["_to_copy"] += 1
    _to_host(rehearsal, rehearsal.card(source.device), result, values, non_blocking)
    return result


def _copy_(rehearsal: Rehearsal, card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Tensor.copy_ between any two places."""
    target, source = args[0], args[1]
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    counts = rehearsal.counts
    if isinstance(target, RehearsedTensor) and isinstance(source, RehearsedTensor):
        counts.launches["copy_"] += 1
        if source.device != target.device:
            counts.copies[f"D2D {counts.place()}"] += 1
    elif isinstance(target, RehearsedTensor):
        _to_card(rehearsal, card, source, non_blocking)
    else:
        values = torch.empty_like(target).copy_(source.host)
        if values.dtype != source.dtype:
            counts.launches["copy_"] += 1
        _to_host(rehearsal, card, target, values, non_blocking)
        return target
    target.host.copy_(source.host if isinstance(source, RehearsedTensor) else source)
    return target


def _to_card(rehearsal: Rehearsal, card: Card, source: torch.Tensor, non_blocking: bool) -> None:
    """A copy from the host. Non-blocking from pinned memory it is done when the host waits for it.

    Till then the memory must stay as it is, which is checked when the host waits.
    """
    counts, pinned = rehearsal.counts, source.is_pinned()
    kind = f"H2D {'pinned' if pinned else 'pageable'}"
    counts.copies[f"{kind} {counts.place()}"] += 1
    if not (pinned and non_blocking):
        card.synchronise(kind)
        return
    sent, place = source.clone(), counts.place()

    def arrive() -> None:
        if not torch.equal(source.nan_to_num(), sent.nan_to_num()):
            raise RaceError(
                f"pinned memory was changed while the copy of {place} was reading it: wait for an event first"
            )

    card.submit(Submitted(arrive, collective=False))


def _to_host(rehearsal: Rehearsal, card: Card, target: torch.Tensor, values: torch.Tensor, non_blocking: bool) -> None:
    """A copy to the host. Non-blocking into pinned memory it is done when the host waits for it, and garbage till then.

    That a program reads too early shows on the real device only now and then; here it always does.
    """
    counts, pinned = rehearsal.counts, target.is_pinned()
    kind = f"D2H {'pinned' if pinned else 'pageable'}"
    counts.copies[f"{kind} {counts.place()}"] += 1
    if not (pinned and non_blocking):
        card.synchronise(kind)
        target.copy_(values)
        return
    arrived = values.clone()
    target.fill_(_garbage(target.dtype))
    card.submit(Submitted(lambda: target.copy_(arrived), collective=False))


def _garbage(dtype: torch.dtype) -> float | int | bool:
    """A value that no program takes for a result."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def _no_op(rehearsal: Rehearsal, card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """record_stream keeps memory from being used again too early; here it never is."""


def _not_pinned(rehearsal: Rehearsal, card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return False


def _pin(rehearsal: Rehearsal, card: Card, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise rules.no_pinning(args[0])


SPECIAL: dict[str, Callable[..., Any]] = {
    "_to_copy": _to_copy,
    "copy_": _copy_,
    "record_stream": _no_op,
    "is_pinned": _not_pinned,
    "_pin_memory": _pin,
    "pin_memory": _pin,
}
"""Operators that are not simply computed."""
