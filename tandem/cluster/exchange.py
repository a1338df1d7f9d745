"""How the work of several processes is put together: the strategies behind one small interface.

Inside a host gradients are always summed in full precision, so that more processes on a host cost the network
nothing. Between hosts the chosen strategy decides what travels, and how often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tandem.cluster.instants import Instant, now
from tandem.cluster.reducer import Reducer
from tandem.cluster.sums import Sum
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


@dataclass(frozen=True)
class Trained:
    """What is trained, as an exchange sees it: a vector of weights, and one of gradients of the same length."""

    weights: Tensor
    gradient: Tensor
    leaves: Sequence[nn.Parameter]
    """What backward leaves gradients at, in the order of the vector."""


class Votes(NamedTuple):
    """What processes decide together before an update: of one process, or summed over those that share the gradient."""

    full: float
    """Its memory did not suffice: the gradient is to be thrown away, and the step repeated in smaller parts."""
    stop: float
    """It was asked to stop after this step."""


@dataclass(frozen=True)
class Exchanged:
    """What an exchange of gradients came to."""

    exposures: Sequence[Exposure] = ()
    votes: Votes | None = None
    """The sum of votes, if the processes met before the exchange; otherwise they have yet to vote."""


class Exchange(ABC):
    """What a training step needs to know of the other processes."""

    @abstractmethod
    def before_backward(self, step: int, *, first: bool, last: bool) -> None:
        """Get ready for a backward pass, the first or last of the step on this process or one between."""

    @abstractmethod
    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        """Make the flat gradient the one that the update is to use, after the step's last pass.

        Where processes meet before they exchange, the meeting is the vote.
        """

    @abstractmethod
    def vote(self, step: int, *numbers: float) -> list[float]:
        """Each number summed over the processes that share this step's gradient: one small message."""

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


class Alone(Exchange):
    """Takes no notice of other processes."""

    def __init__(self, trained: Trained, device: torch.device) -> None:
        self._reducer = Reducer(trained.leaves, trained.gradient, None, device)

    def before_backward(self, step: int, *, first: bool, last: bool) -> None:
        self._reducer.expect(first=first, exchanges=False)

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        self._reducer.finish()
        return Exchanged()

    def vote(self, step: int, *numbers: float) -> list[float]:
        return list(numbers)

    def take_bytes(self) -> int:
        return 0


class AllReduce(Exchange):
    """Every process ends a step's last backward pass with the gradient of the global batch, in full precision.

    Buckets of gradients travel while backward still computes others, where the backend allows it.
    """

    def __init__(self, trained: Trained, world: World) -> None:
        self._world = world
        group = dist.group.WORLD if world.size > 1 else None
        self._reducer = Reducer(trained.leaves, trained.gradient, group, world.device)

    def before_backward(self, step: int, *, first: bool, last: bool) -> None:
        self._reducer.expect(first=first, exchanges=last and not self._sampled(step))

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        last_launch = self._reducer.finish()
        if last_launch is not None:
            return Exchanged([Exposure(last_launch, None, now(self._world.device))])
        if not self._sampled(step):
            return Exchanged()
        ready = now(self._world.device)
        votes = Votes(*self.vote(step, *mine))
        met = now(self._world.device)
        if not votes.full:
            self._reducer.sum_all()
        return Exchanged([Exposure(ready, met, now(self._world.device))], votes)

    def vote(self, step: int, *numbers: float) -> list[float]:
        return self._world.total(*numbers)

    def take_bytes(self) -> int:
        taken, self._reducer.bytes = self._reducer.bytes, 0
        return taken

    def _sampled(self, step: int) -> bool:
        return self._world.size > 1 and step % SAMPLED_EVERY == 1


class SumBetweenHosts(Exchange):
    """Full precision inside a host; then the hosts' first processes sum in their own way, and pass the result on."""

    def __init__(self, trained: Trained, world: World, make_sum: SumMaker) -> None:
        self._world = world
        self._reducer = Reducer(trained.leaves, trained.gradient, world.inside, world.device)
        self._sum = make_sum(world.between) if world.between is not None else None

    def before_backward(self, step: int, *, first: bool, last: bool) -> None:
        self._reducer.expect(first=first, exchanges=last)

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        inside = self.sum_inside()
        ready = now(self._world.device)
        votes = Votes(*self.vote(step, *mine))
        met = now(self._world.device)
        # What is thrown away must not be remembered as sent.
        if not votes.full:
            if self._sum is not None:
                self._sum.sum_(self._reducer.gradient)
            self._world.pass_on_inside(self._reducer.gradient)
        return Exchanged([*inside, Exposure(ready, met, now(self._world.device))], votes)

    def vote(self, step: int, *numbers: float) -> list[float]:
        return self._world.total(*numbers)

    def sum_inside(self) -> Sequence[Exposure]:
        """End the sum inside the host; what of it backward could not hide."""
        last_launch = self._reducer.finish()
        return [] if last_launch is None else [Exposure(last_launch, None, now(self._world.device))]

    def take_bytes(self) -> int:
        taken, self._reducer.bytes = self._reducer.bytes, 0
        return taken + (self._sum.take_bytes() if self._sum is not None else 0)

    def tensors(self) -> dict[str, Tensor]:
        return self._sum.tensors() if self._sum is not None else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if self._sum is not None:
            self._sum.restore(tensors)


class SumMaker(Protocol):
    """Makes the sum over the hosts' first processes."""

    def __call__(self, group: dist.ProcessGroup) -> Sum: ...
