"""How the work of several processes is put together: the strategies behind one small interface.

Inside a host gradients are always summed in full precision, so that more processes on a host cost the network
nothing. Between hosts the chosen strategy decides what travels, and how often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tandem.cluster.instants import Instant, now
from tandem.cluster.sums import Sum
from tandem.cluster.traffic import ring_bytes
from tandem.cluster.world import World

# One plain all-reduce in so many is taken apart into waiting and sending: often enough for every log line,
# seldom enough that the overlap it gives up does not show.
SAMPLED_EVERY = 8


@dataclass(frozen=True)
class Exposure:
    """A stretch in which this process did nothing but take part in an exchange."""

    ready: Instant
    """It had its own contribution ready."""
    met: Instant | None
    """All others had theirs, too; None if nobody looked."""
    done: Instant
    """It had the result."""


class Exchange(ABC):
    """What a training step needs to know of the other processes."""

    module: nn.Module
    """What the forward pass goes through."""

    @abstractmethod
    def only_when(self, step: int, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients in this backward pass only if it is the step's last on this process."""

    @abstractmethod
    def after_backward(self, step: int) -> Sequence[Exposure]:
        """Make the gradients those that the update is to use."""

    def after_update(self, step: int) -> Exposure | None:
        """Put the updated weights together, if it is their turn."""
        return None

    def shares_gradients(self, step: int) -> bool:
        """Whether all processes update with the gradient of the global batch, or each host with that of its own."""
        return True

    def round_start(self, step: int) -> int:
        """The last step before this one after which all processes held the same weights."""
        return step - 1

    def settles(self, step: int) -> bool:
        """Whether all processes hold the same weights after this step."""
        return True

    @abstractmethod
    def take_bytes(self) -> int:
        """Bytes that this process has sent for the exchange, by calculation, since this was last asked."""

    def tensors(self) -> dict[str, Tensor]:
        """What this process's host must remember to go on exactly; empty on all but the host's first process."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember again what was saved."""
        assert not tensors, "nothing was ever remembered"


class Bucket(Protocol):
    """Some gradients that DDP has laid side by side, ready to be exchanged."""

    def buffer(self) -> Tensor: ...


class SummedGradients:
    """DistributedDataParallel with a plain sum over a group of processes, or nothing for a process alone.

    DDP's own average over processes would weigh a short micro-batch like a long one; the loss is divided by the
    global token count instead, so a sum is exact however the micro-batches were dealt.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self._group, self._device = group, device
        self._ddp: DistributedDataParallel | None = None
        self.module = module
        self.bytes = 0
        self.last_launch: Instant | None = None
        """When the newest exchange began, after which backward had nothing left to hide behind."""
        if group is not None:
            self._ddp = DistributedDataParallel(
                module, process_group=group, forward_sync_buffers=False, gradient_as_bucket_view=True
            )
            # A lambda, because DDP insists on the exact class in the hook's annotations, which no type checker knows.
            self._ddp.register_comm_hook(None, lambda _state, bucket: self._sum_bucket(bucket))
            self.module = self._ddp

    def only_when(self, exchanging: bool) -> AbstractContextManager[None]:
        return nullcontext() if self._ddp is None or exchanging else self._ddp.no_sync()

    def sum_(self, vector: Tensor) -> Future[list[Tensor]]:
        """Start to sum a vector over the group."""
        assert self._group is not None
        self.bytes += ring_bytes(vector.nbytes, self._group.size())
        work = dist.all_reduce(vector, group=self._group, async_op=True)
        assert work is not None
        future: Future[list[Tensor]] = work.get_future()
        return future

    def exposures(self) -> Sequence[Exposure]:
        """What of the exchange backward could not hide, just after backward."""
        return [Exposure(self.last_launch, None, now(self._device))] if self.last_launch is not None else []

    def _sum_bucket(self, bucket: Bucket) -> Future[Tensor]:
        self.last_launch = now(self._device)
        return self.sum_(bucket.buffer()).then(_first_value)


class AllReduce(Exchange):
    """Every process ends a backward pass with the gradient of the global batch, in full precision.

    Buckets of gradients travel while backward still computes others, where the backend allows it.
    """

    def __init__(self, module: nn.Module, world: World) -> None:
        self._world = world
        self._summed = SummedGradients(module, dist.group.WORLD if world.size > 1 else None, world.device)
        self.module = self._summed.module

    def only_when(self, step: int, last: bool) -> AbstractContextManager[None]:
        return self._summed.only_when(last and not self._sampled(step))

    def after_backward(self, step: int) -> Sequence[Exposure]:
        if not self._sampled(step):
            return self._summed.exposures()
        ready = now(self._world.device)
        self._world.meet()
        met = now(self._world.device)
        gradients = gradients_of(self.module)
        vector = flattened(gradients)
        self._summed.sum_(vector).wait()
        copy_into(gradients, vector)
        return [Exposure(ready, met, now(self._world.device))]

    def take_bytes(self) -> int:
        taken, self._summed.bytes = self._summed.bytes, 0
        return taken

    def _sampled(self, step: int) -> bool:
        return self._world.size > 1 and step % SAMPLED_EVERY == 1


class SumBetweenHosts(Exchange):
    """Full precision inside a host; then the hosts' first processes sum in their own way, and pass the result on."""

    def __init__(self, module: nn.Module, world: World, make_sum: SumMaker) -> None:
        self._world = world
        self._summed = SummedGradients(module, world.inside, world.device)
        self.module = self._summed.module
        self._sum = make_sum(world.between) if world.between is not None else None

    def only_when(self, step: int, last: bool) -> AbstractContextManager[None]:
        return self._summed.only_when(last)

    def after_backward(self, step: int) -> Sequence[Exposure]:
        inside = self._summed.exposures()
        ready = now(self._world.device)
        self._world.meet()
        met = now(self._world.device)
        gradients = gradients_of(self.module)
        vector = flattened(gradients)
        if self._sum is not None:
            self._sum.sum_(vector)
        self._world.pass_on_inside(vector)
        copy_into(gradients, vector)
        return [*inside, Exposure(ready, met, now(self._world.device))]

    def exposures_inside(self) -> Sequence[Exposure]:
        """What of the sum inside the host backward could not hide, if nothing else is exchanged in this step."""
        return self._summed.exposures()

    def take_bytes(self) -> int:
        taken, self._summed.bytes = self._summed.bytes, 0
        return taken + (self._sum.take_bytes() if self._sum is not None else 0)

    def tensors(self) -> dict[str, Tensor]:
        return self._sum.tensors() if self._sum is not None else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if self._sum is not None:
            self._sum.restore(tensors)


class SumMaker(Protocol):
    """Makes the sum over the hosts' first processes."""

    def __call__(self, group: dist.ProcessGroup) -> Sum: ...


def gradients_of(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def flattened(tensors: Iterable[Tensor]) -> Tensor:
    """The tensors' values as one long vector."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def copy_into(tensors: Iterable[Tensor], vector: Tensor) -> None:
    """Put a long vector's values back into the tensors."""
    tensors = list(tensors)
    for tensor, part in zip(tensors, torch.split(vector, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(part.view_as(tensor))


def _first_value(future: Future[list[Tensor]]) -> torch.Tensor:
    return future.value()[0]
