"""`rehearsed_cuda`: a CUDA device without a card, for the time of a `with` block. Import this before torch."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rehearsal.build import library

library()  # before torch, which asks while it is imported who answers for CUDA

import pynvml  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from rehearsal import attention, generator, nccl, nvml, operators, streams  # noqa: E402
from rehearsal.card import Card, HungDeviceError, RaceError  # noqa: E402
from rehearsal.counts import Counts  # noqa: E402
from rehearsal.session import Model, Rehearsal, begin, visible_cards  # noqa: E402

__all__ = ["Counts", "HungDeviceError", "RaceError", "Rehearsal", "rehearsed_cuda"]

CUDA_VERSION, NCCL_VERSION = "12.8", (2, 27, 5)
"""Versions of a recent build; PyTorch asks before it takes bfloat16 hooks and logs them with a failed collective."""
MULTIPROCESSORS = 108
"""Streaming multiprocessors of an A100."""


@contextlib.contextmanager
def rehearsed_cuda(
    cards: int = 1,
    name: str = "NVIDIA A100-SXM4-80GB",
    capability: tuple[int, int] = (8, 0),
    memory_bytes: float = 80e9,
    hung_on_lost_peer: bool = True,
    package: Path | None = None,
) -> Iterator[Rehearsal]:
    """Let torch.cuda have this many cards inside the block, and count what the program makes them do.

    Values, control flow, autograd and messages are real; what CUDA or NCCL refuses raises as they would. Counted places
    are lines of `package`, a directory (tandem's own, if not given). With `hung_on_lost_peer` false, a collective whose
    peer is gone raises gloo's error instead of hanging the card.
    """
    counts = Counts(package or _tandem())
    model = Model(name, capability, int(memory_bytes))
    visible = [
        Card(index, physical, model.memory_bytes, counts, hung_on_lost_peer)
        for index, physical in enumerate(visible_cards(cards))
    ]
    rehearsal = Rehearsal(model, cards, tuple(visible), counts)
    with contextlib.ExitStack() as undo:
        begin(rehearsal)
        undo.callback(begin, None)
        kernels = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
        undo.callback(kernels._destroy)
        kernels.fallback(operators.fallback, "CUDA")  # type: ignore[no-untyped-call]
        # torch.tensor(..., device="cuda") would copy with Python's dispatch switched off, unless it lifts on the CPU.
        undo.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        for target, names in _replacements(rehearsal).items():
            undo.enter_context(patch.multiple(target, create=True, **names))
        yield rehearsal


def _replacements(rehearsal: Rehearsal) -> dict[Any, dict[str, Any]]:
    """Module or class -> attributes that the rehearsal replaces in it."""
    messages = {name: nccl.counting_messages(getattr(dist, name)) for name in nccl.COUNTED_MESSAGES}
    groups = {"ProcessGroupNCCL": nccl.ProcessGroupNCCL, "is_nccl_available": lambda: True, **messages}
    return {
        torch.cuda: _cuda_functions(rehearsal),
        torch: {"Event": streams.Event, "Stream": streams.Stream, "Generator": generator.Generator},
        torch.accelerator: {"synchronize": lambda device=None: rehearsal.card(device).synchronise_all("synchronize")},
        torch.nn.functional: {"scaled_dot_product_attention": attention.on_any_device},
        torch._C: {"_InferenceMode": _NoGradients},
        torch.version: {"cuda": CUDA_VERSION},
        torch.cuda.nccl: {"version": lambda: NCCL_VERSION},
        torch.backends.cuda: {"is_built": lambda: True},
        dist: {name: value for name, value in groups.items() if hasattr(dist, name)},
        dist.distributed_c10d: groups,
        # DDP's statistics want a timer in C++ that only the CUDA build has.
        torch._C._distributed_c10d.Logger: {"set_runtime_stats_and_log": lambda self: None},
        pynvml: nvml.functions(rehearsal),
    }


def _cuda_functions(rehearsal: Rehearsal) -> dict[str, Any]:
    """Stand-ins for functions of torch.cuda, by name; those not listed are PyTorch's own and call these."""
    card = rehearsal.card
    available = bool(rehearsal.cards)

    def set_device(device: Any) -> None:
        library().rehearsal_set_device(card(device).index)

    def exchange_device(index: int) -> int:
        before: int = library().rehearsal_current_device()
        if index >= 0:
            set_device(index)
        return before

    def reset_peak(device: Any = None) -> None:
        card(device).peak = card(device).allocated

    def seed_all(seed: int) -> None:
        for each in rehearsal.cards:
            each.generator.manual_seed(int(seed))

    return {
        "is_available": lambda: available,
        "is_initialized": lambda: available,
        "_lazy_init": lambda: card() and None,
        "init": lambda: card() and None,
        "device_count": lambda: len(rehearsal.cards),
        "current_device": lambda: card().index,
        "set_device": set_device,
        "_exchange_device": exchange_device,
        "_maybe_exchange_device": exchange_device,
        "synchronize": lambda device=None: card(device).synchronise_all("synchronize"),
        "get_device_properties": lambda device=None: _properties(rehearsal.model, card(device)),
        "get_device_name": lambda device=None: card(device) and rehearsal.model.name,
        "get_device_capability": lambda device=None: card(device) and rehearsal.model.capability,
        "mem_get_info": lambda device=None: (_free(card(device)), card(device).memory_bytes),
        "memory_allocated": lambda device=None: card(device).allocated,
        "max_memory_allocated": lambda device=None: card(device).peak,
        "memory_reserved": lambda device=None: card(device).allocated,
        "max_memory_reserved": lambda device=None: card(device).peak,
        "reset_peak_memory_stats": reset_peak,
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: card().generator.manual_seed(int(seed)) and None,
        "manual_seed_all": seed_all,
        "initial_seed": lambda: card().generator.initial_seed(),
        "get_rng_state": lambda device=None: card(device).generator.get_state(),
        "set_rng_state": lambda state, device=None: card(device).generator.set_state(state) and None,
        "Event": streams.CudaEvent,
        "Stream": streams.Stream,
        "current_stream": streams.current_stream,
        "default_stream": streams.current_stream,
        "stream": streams.use_stream,
    }


class _NoGradients(torch.no_grad):
    """Stands for inference mode, whose tensors cannot be wrapped."""

    def __new__(cls, mode: bool = True) -> Any:
        return super().__new__(cls) if mode else contextlib.nullcontext()

    def __init__(self, mode: bool = True) -> None:
        super().__init__()


def _free(card: Card) -> int:
    return card.memory_bytes - card.allocated


def _properties(model: Model, card: Card) -> SimpleNamespace:
    """What torch.cuda.get_device_properties tells."""
    return SimpleNamespace(
        name=model.name,
        major=model.capability[0],
        minor=model.capability[1],
        total_memory=model.memory_bytes,
        multi_processor_count=MULTIPROCESSORS,
        uuid=card.uuid,
        warp_size=32,
        is_integrated=0,
    )


def _tandem() -> Path:
    """The directory of the tandem package, which is not imported for that."""
    spec = importlib.util.find_spec("tandem")
    assert spec is not None, "the tandem package is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent
