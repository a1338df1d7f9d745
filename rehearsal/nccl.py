"""NCCL on the rehearsal device: collectives of device tensors run over gloo on their CPU values, under NCCL's rules.

`init_process_group("nccl")` takes PyTorch's own path to NCCL; only the class it ends at, ProcessGroupNCCL, is ours. A
collective is put into the card's queue and the host runs on, as with NCCL. If a peer is gone the transfer fails; NCCL
would not say so, its kernel just never ends, so the card is marked as hung and the next synchronisation with it fails.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Work

from rehearsal import rules
from rehearsal.card import Card, Submitted
from rehearsal.session import current
from rehearsal.tensor import RehearsedTensor, host_of, map_tensors, tensors_in

DEFAULT_TIMEOUT = timedelta(minutes=10)
"""kProcessGroupNCCLDefaultTimeout."""


_groups: list[ProcessGroupNCCL] = []
"""C++ keeps the C++ half of a group only, and would show it as an ordinary gloo group if the Python half were gone."""


class ProcessGroupNCCL(dist.ProcessGroupGloo):
    """Stands for torch.distributed.ProcessGroupNCCL; a gloo group of its own, apart from the control messages'."""

    class Options(SimpleNamespace):
        """Settings that PyTorch fills in; only the timeout has an effect."""

        _timeout = DEFAULT_TIMEOUT

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        super().__init__(store, rank, size, timeout=options._timeout)
        _groups.append(self)


_recent: deque[DeviceWork] = deque(maxlen=64)
"""C++ keeps the C++ half of a work only, and would fall back to waiting for ever if the Python half were gone."""


class DeviceWork(Work):
    """A collective under way; `wait` puts it into the card's queue without waiting on the host, as NCCL's does."""

    def __init__(self, card: Card, submitted: Submitted, result: list[torch.Tensor], gloo: Any) -> None:
        super().__init__()
        self._card, self._submitted, self._gloo = card, submitted, gloo
        self._result = [weakref.ref(tensor) for tensor in result]
        _recent.append(self)

    def wait(self, timeout: Any = None) -> bool:
        """Later kernels of the current stream come after the collective."""
        self._submitted.ordered = True
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Whether the collective has ended; one with a lost peer never has."""
        return self._submitted.done or (self._card.hung is None and bool(self._gloo.is_completed()))

    def is_success(self) -> bool:
        return self.is_completed()

    def exception(self) -> Any:
        """NCCL's kernel does not fail, it waits."""
        return None

    def result(self) -> list[Any]:
        return [tensor() for tensor in self._result]

    def get_future(self) -> Any:
        """A future that is done: NCCL's callbacks run at once, and their kernels come after the collective."""
        self.wait()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.result())
        return future


def collective(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operator of c10d with device tensors."""
    name = func.overloadpacket.__name__.strip("_")
    if name not in COLLECTIVES:
        raise NotImplementedError(f"the rehearsal device has no collective {name}")
    rehearsal = current()
    tensors = tensors_in(args)
    card = rehearsal.card(next(tensor.device for tensor in tensors if tensor.is_cuda))
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    group = dist.ProcessGroup.unbox(named["process_group"])
    backend = group._get_backend(card.device)
    if isinstance(backend, ProcessGroupNCCL):
        rules.check_nccl(tensors)
    else:
        card.synchronise("gloo")
    card.finish_collectives()
    rehearsal.counts.launches[f"nccl_{name}" if isinstance(backend, ProcessGroupNCCL) else f"gloo_{name}"] += 1
    work = _start(card, backend, COLLECTIVES[name], named, tensors)
    if name == "barrier":
        card.synchronise("barrier")
    returns = [value for value, entry in zip(args, func._schema.returns, strict=False) if str(entry.type) != "Work"]
    boxed = Work.boxed(work)
    return (returns[0], boxed) if len(func._schema.returns) > 1 else boxed


def _start(card: Card, backend: Any, run: Callable[..., Any], named: dict[str, Any], tensors: Any) -> DeviceWork:
    """Start the transfer over gloo and put its completion into the card's queue.

    What gloo refuses at once is a mistake in the arguments and raises; what fails later is a peer that is gone.
    """
    if card.hung is not None:
        # Behind a kernel that never ends nothing starts.
        submitted = Submitted(lambda: None, collective=True)
        card.submit(submitted)
        return DeviceWork(card, submitted, list(tensors), None)
    # NCCL's sum of booleans is "or".
    booleans = [tensor.host for tensor in tensors if tensor.dtype == torch.bool]
    finish: list[Callable[[], object]] = [partial(host.view(torch.uint8).clamp_, max=1) for host in booleans]

    def complete() -> None:
        gloo.wait()
        for step in finish:
            step()

    gloo = run(backend, map_tensors(_wire, named), finish)
    submitted = Submitted(complete, collective=True, ordered=not named.get("async_op", True))
    card.submit(submitted)
    return DeviceWork(card, submitted, list(tensors), gloo)


def _wire(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU tensor as it travels: bool as bytes, complex as pairs."""
    host: torch.Tensor = host_of(tensor)
    if host.dtype == torch.bool:
        return host.view(torch.uint8)
    return torch.view_as_real(host) if host.is_complex() else host


def _reduction(boxed: Any, outputs: list[torch.Tensor], size: int, finish: list[Callable[[], object]]) -> Any:
    """gloo's reduction for NCCL's: the average, which gloo lacks, is a sum that is divided at the end."""
    op = dist.ReduceOp.RedOpType(boxed.op())
    if op == dist.ReduceOp.AVG:
        finish.extend(partial(output.div_, size) for output in outputs)
        return dist.ReduceOp.SUM
    return op


def _allreduce(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    options = c10d.AllreduceOptions()
    options.reduceOp = _reduction(named["reduce_op"], named["tensors"], backend.size(), finish)
    return backend.allreduce(named["tensors"], options)


def _broadcast(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    options = c10d.BroadcastOptions()
    options.rootRank, options.rootTensor = named["root_rank"], named["root_tensor"]
    return backend.broadcast(named["tensors"], options)


def _reduce(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    options = c10d.ReduceOptions()
    options.rootRank, options.rootTensor = named["root_rank"], named["root_tensor"]
    options.reduceOp = _reduction(named["reduce_op"], named["tensors"], backend.size(), finish)
    return backend.reduce(named["tensors"], options)


def _allgather(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    return backend.allgather(named["output_tensors"], named["input_tensors"], c10d.AllgatherOptions())


def _allgather_base(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    return backend._allgather_base(named["output_tensor"], named["input_tensor"], c10d.AllgatherOptions())


def _reduce_scatter(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    options = c10d.ReduceScatterOptions()
    options.reduceOp = _reduction(named["reduce_op"], named["output_tensors"], backend.size(), finish)
    return backend.reduce_scatter(named["output_tensors"], named["input_tensors"], options)


def _reduce_scatter_base(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    options = c10d.ReduceScatterOptions()
    options.reduceOp = _reduction(named["reduce_op"], [named["output_tensor"]], backend.size(), finish)
    return backend._reduce_scatter_base(named["output_tensor"], named["input_tensor"], options)


def _alltoall_base(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    sizes = list(named["output_split_sizes"]), list(named["input_split_sizes"])
    return backend.alltoall_base(named["output"], named["input"], *sizes, c10d.AllToAllOptions())


def _barrier(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    return backend.barrier(c10d.BarrierOptions())


def _send(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    return backend.send(named["tensors"], named["dst"], named["tag"])


def _recv(backend: Any, named: dict[str, Any], finish: list[Callable[[], object]]) -> Any:
    return backend.recv(named["tensors"], named["src"], named["tag"])


COLLECTIVES: dict[str, Callable[[Any, dict[str, Any], list[Callable[[], object]]], Any]] = {
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "allgather": _allgather,
    "allgather_base": _allgather_base,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_base": _reduce_scatter_base,
    "alltoall_base": _alltoall_base,
    "barrier": _barrier,
    "send": _send,
    "recv": _recv,
}
"""Operators of c10d without their underscores, and how gloo does them."""

COUNTED_MESSAGES = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_single"),
    *("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "all_to_all_single"),
    *("gather", "scatter", "send", "recv", "isend", "irecv"),
)
"""Functions of torch.distributed that are counted as control messages if a tensor of theirs is on the CPU."""


def counting_messages(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of torch.distributed, counted if it sends tensors of the CPU."""

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        tensors = tensors_in(args, kwargs)
        if tensors and not any(isinstance(tensor, RehearsedTensor) for tensor in tensors):
            counts = current().counts
            counts.messages[f"{function.__name__} {counts.place()}"] += 1
        return function(*args, **kwargs)

    return counted
