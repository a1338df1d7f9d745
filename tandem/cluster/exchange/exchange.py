"""The interface between a training step and the other processes, and the exchanges that sum gradients.

Inside a host gradients are always summed in full precision, so that more processes on a host cost the network
nothing. Between hosts the chosen strategy decides what travels, and how often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tandem.cluster.exchange.gradient_reducer import GradientReducer
from tandem.cluster.exchange.vector_sum import VectorSum
from tandem.cluster.world import World
from tandem.monitor.device_clock import now
from tandem.monitor.step_clock import Exposure


@dataclass(frozen=True)
class FlatVectors:
    """The flat weights and the flat gradient of a model, which an exchange works on."""

    weights: Tensor
    gradient: Tensor
    leaves: Sequence[Sequence[nn.Parameter]]
    """The parameters at which backward leaves gradients, in the order of the vector: of each model that passes run
    through in parallel."""

    @property
    def shapes(self) -> list[torch.Size]:
        return [leaf.shape for leaf in self.leaves[0]]


class Votes(NamedTuple):
    """What processes decide together before an update: one process's votes, or their sum over processes."""

    full: float
    """Memory did not suffice: the gradient is to be thrown away, and the step repeated in smaller parts."""
    stop: float
    """The process was asked to stop after this step: a number that stands for the signal, 0 if it was not."""
    writing: float
    """The process has not written its part of a checkpoint yet, which all settle together once nobody is at it."""


@dataclass(frozen=True)
class Exchanged:
    """Result of an exchange of gradients."""

    exposures: Sequence[Exposure] = ()
    votes: Votes | None = None
    """The sum of votes, if the processes met before the exchange; otherwise they have yet to vote."""


class Exchange(ABC):
    """What a training step does with the other processes."""

    @abstractmethod
    def before_backward(self, step: int, *, first: bool, last: bool, passes: int = 1) -> None:
        """Get ready for so many backward passes in parallel, first or last of the step on this process, or neither."""

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

    def last_sync_before(self, step: int) -> int:
        """The last step before this one after which all processes held the same weights."""
        return step - 1

    def in_sync_after(self, step: int) -> bool:
        """Whether all processes hold the same weights after this step."""
        return True

    def state_is_of(self, step: int) -> bool:
        """Whether `state_tensors` is still what it was after this step: an exchange that fails may have changed it."""
        return True

    @abstractmethod
    def pop_sent_bytes(self) -> int:
        """Bytes that this process has sent for the exchange, by calculation, since the last call."""

    def state_tensors(self) -> dict[str, Tensor]:
        """State that this host must save to go on exactly; empty on all but the host's first process."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up saved state."""
        assert not tensors, "there is no state to save"


class NoExchange(Exchange):
    """Keeps every process's gradient to itself, for steps that are taken for their time alone."""

    def __init__(self, vectors: FlatVectors, device: torch.device) -> None:
        self._reducer = GradientReducer(vectors.leaves, vectors.gradient, None, device)

    def before_backward(self, step: int, *, first: bool, last: bool, passes: int = 1) -> None:
        self._reducer.expect(first=first, exchanges=False, passes=passes)

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        self._reducer.finish()
        return Exchanged()

    def vote(self, step: int, *numbers: float) -> list[float]:
        return list(numbers)

    def pop_sent_bytes(self) -> int:
        return 0


class SumBetweenHosts(Exchange):
    """A float32 sum inside each host, then a compressed one over the hosts' first processes, in every step."""

    def __init__(self, vectors: FlatVectors, world: World, sum_: VectorSum | None) -> None:
        self._world = world
        self._reducer = GradientReducer(vectors.leaves, vectors.gradient, world.host_group, world.device)
        self._sum = sum_
        self._newest_sum = 0
        """The newest step whose sum between hosts has begun, which changes its state from its first moment on."""

    def before_backward(self, step: int, *, first: bool, last: bool, passes: int = 1) -> None:
        self._reducer.expect(first=first, exchanges=last, passes=passes)

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        inside = self.sum_inside()
        ready = now(self._world.device)
        votes = Votes(*self.vote(step, *mine))
        met = now(self._world.device)
        # The error feedback of a gradient that is thrown away must not be kept.
        if not votes.full:
            if self._sum is not None:
                self._newest_sum = step
                self._sum.sum_(self._reducer.gradient)
            self._world.broadcast_in_host(self._reducer.gradient)
        return Exchanged([*inside, Exposure(ready, met, now(self._world.device))], votes)

    def vote(self, step: int, *numbers: float) -> list[float]:
        return self._world.total(*numbers)

    def sum_inside(self) -> Sequence[Exposure]:
        """End the sum inside the host; what of it backward could not hide."""
        last_launch = self._reducer.finish()
        return [] if last_launch is None else [Exposure(last_launch, None, now(self._world.device))]

    def pop_sent_bytes(self) -> int:
        taken, self._reducer.bytes = self._reducer.bytes, 0
        return taken + (self._sum.pop_sent_bytes() if self._sum is not None else 0)

    def state_is_of(self, step: int) -> bool:
        return self._newest_sum <= step

    def state_tensors(self) -> dict[str, Tensor]:
        return self._sum.state_tensors() if self._sum is not None else {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        if self._sum is not None:
            self._sum.load_state(tensors)
