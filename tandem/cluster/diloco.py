"""Local steps: each host trains by itself for a while, then the hosts put their changes of the weights together.

After every round the hosts sum their changes, and one outer step with Nesterov momentum follows the mean change
from where all of them began (DiLoCo). Adam's means stay with each host. The first steps of a run may be taken
together, because the earliest changes of separate hosts point in too different directions to be averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.cluster.exchange import Exchange, Exchanged, Exposure, SumBetweenHosts, SumMaker, Trained, Votes
from tandem.cluster.instants import now
from tandem.cluster.world import World
from tandem.config import ExchangeConfig


@dataclass(frozen=True)
class Rounds:
    """Which steps the hosts take together, and after which of the others they meet."""

    start: int
    """So many first steps are taken together."""
    length: int
    last: int
    """The last step of the run ends a round, however short."""

    def start_before(self, step: int) -> int:
        """The last meeting before a step."""
        return step - 1 if step <= self.start else self.start + (step - 1 - self.start) // self.length * self.length

    def end_at(self, step: int) -> bool:
        """Whether the hosts meet after a step."""
        return step <= self.start or (step - self.start) % self.length == 0 or step == self.last


class LocalSteps(Exchange):
    """Exchanges changes of the weights after every so many steps instead of gradients in each."""

    def __init__(
        self,
        trained: Trained,
        world: World,
        settings: ExchangeConfig,
        *,
        rounds: Rounds,
        start_sum: SumMaker,
        change_sum: SumMaker,
    ) -> None:
        self._world, self._settings, self._rounds = world, settings, rounds
        self._start = SumBetweenHosts(trained, world, start_sum)
        self._weights = trained.weights
        self._sum = change_sum(world.between) if world.between is not None else None
        self._round_weights = self._weights.clone()
        """The weights that all hosts began the round with; a session begins where all hold the same."""
        self._momentum = torch.zeros_like(self._round_weights) if self._sum is not None else torch.empty(0)

    def before_backward(self, step: int, *, first: bool, last: bool) -> None:
        self._start.before_backward(step, first=first, last=last)

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        if self.shares_gradients(step):
            return self._start.after_backward(step, mine)
        if step == self._rounds.start + 1:
            self._round_weights.copy_(self._weights)
        return Exchanged(self._start.sum_inside())

    def vote(self, step: int, *numbers: float) -> list[float]:
        return self._world.total(*numbers) if self.shares_gradients(step) else self._world.total_inside(*numbers)

    def after_update(self, step: int) -> Exposure | None:
        if self.shares_gradients(step) or not self.settles(step):
            return None
        ready = now(self._world.device)
        self._world.meet()
        met = now(self._world.device)
        weights = self._round_weights
        if self._sum is not None:
            rate, momentum = self._settings.outer_rate, self._settings.outer_momentum
            change = self._weights - weights
            self._sum.sum_(change)
            change /= len(self._world.hosts)
            self._momentum.mul_(momentum).add_(change)
            weights.add_(change, alpha=rate).add_(self._momentum, alpha=rate * momentum)
        self._world.pass_on_inside(weights)
        self._weights.copy_(weights)
        return Exposure(ready, met, now(self._world.device))

    def shares_gradients(self, step: int) -> bool:
        return step <= self._rounds.start

    def round_start(self, step: int) -> int:
        return self._rounds.start_before(step)

    def settles(self, step: int) -> bool:
        return self._rounds.end_at(step)

    def take_bytes(self) -> int:
        return self._start.take_bytes() + (self._sum.take_bytes() if self._sum is not None else 0)

    def tensors(self) -> dict[str, Tensor]:
        if self._sum is None:
            return {}
        kept = {"start": self._start.tensors(), "changes": self._sum.tensors()}
        named = {f"{part}.{name}": tensor for part, tensors in kept.items() for name, tensor in tensors.items()}
        return {**named, "momentum": self._momentum}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if self._sum is not None:
            self._start.restore(_below("start.", tensors))
            self._sum.restore(_below("changes.", tensors))
            self._momentum.copy_(tensors["momentum"])


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
