"""diloco: each host trains by itself for a while, then the hosts put their changes of the weights together.

After every round the hosts sum their changes, and one outer step with Nesterov momentum follows the mean change
from where all of them began (DiLoCo). Adam's means stay with each host. The first steps of a run may be taken
together, because the earliest changes of separate hosts point in too different directions to be averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from tandem.cluster.exchange.exchange import Exchange, Exchanged, FlatVectors, SumBetweenHosts, Votes
from tandem.cluster.exchange.strategy import ExchangePlan, Strategy, WarmStart, find_strategy, sum_between_hosts
from tandem.cluster.exchange.vector_sum import VectorSum
from tandem.cluster.world import World
from tandem.config import Config, ExchangeConfig
from tandem.monitor.device_clock import now
from tandem.monitor.step_clock import Exposure

# More local steps than this between two exchanges were never shown to keep the quality.
MOST_LOCAL_STEPS = 128


class LocalSteps(Exchange):
    """Exchanges changes of the weights after every `local_steps` instead of gradients in each.

    The first `start_steps` are all taken together, and the last step of the run ends a round, however short.
    """

    def __init__(
        self,
        vectors: FlatVectors,
        world: World,
        settings: ExchangeConfig,
        *,
        start_steps: int,
        local_steps: int,
        last_step: int,
        start_sum: VectorSum | None,
        change_sum: VectorSum | None,
    ) -> None:
        self._world, self._settings = world, settings
        self._start_steps, self._local_steps, self._last_step = start_steps, local_steps, last_step
        self._start = SumBetweenHosts(vectors, world, start_sum)
        self._weights = vectors.weights
        self._sum = change_sum
        self._round_weights = self._weights.clone()
        """The weights that all hosts began the round with; a session begins where all hold the same."""
        self._momentum = torch.zeros_like(self._round_weights) if self._sum is not None else torch.empty(0)

    def before_backward(self, step: int, *, first: bool, last: bool, passes: int = 1) -> None:
        self._start.before_backward(step, first=first, last=last, passes=passes)

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        if self.shares_gradients(step):
            return self._start.after_backward(step, mine)
        if step == self._start_steps + 1:
            self._round_weights.copy_(self._weights)
        return Exchanged(self._start.sum_inside())

    def vote(self, step: int, *numbers: float) -> list[float]:
        return self._world.total(*numbers) if self.shares_gradients(step) else self._world.total_in_host(*numbers)

    def after_update(self, step: int) -> Exposure | None:
        if self.shares_gradients(step) or not self.in_sync_after(step):
            return None
        ready = now(self._world.device)
        self._world.barrier()
        met = now(self._world.device)
        weights = self._round_weights
        if self._sum is not None:
            rate, momentum = self._settings.outer_rate, self._settings.outer_momentum
            change = self._weights - weights
            self._sum.sum_(change)
            change /= len(self._world.hosts)
            self._momentum.mul_(momentum).add_(change)
            weights.add_(change, alpha=rate).add_(self._momentum, alpha=rate * momentum)
        self._world.broadcast_in_host(weights)
        self._weights.copy_(weights)
        return Exposure(ready, met, now(self._world.device))

    def shares_gradients(self, step: int) -> bool:
        return step <= self._start_steps

    def last_sync_before(self, step: int) -> int:
        start, length = self._start_steps, self._local_steps
        return step - 1 if step <= start else start + (step - 1 - start) // length * length

    def in_sync_after(self, step: int) -> bool:
        ends_round = (step - self._start_steps) % self._local_steps == 0 or step == self._last_step
        return ends_round or self.shares_gradients(step)

    def state_is_of(self, step: int) -> bool:
        # The sum of changes and the momentum change in `after_update` alone, while no other thread looks at the state.
        return self._start.state_is_of(step)

    def pop_sent_bytes(self) -> int:
        return self._start.pop_sent_bytes() + (self._sum.pop_sent_bytes() if self._sum is not None else 0)

    def state_tensors(self) -> dict[str, Tensor]:
        if self._sum is None:
            return {}
        kept = {"start": self._start.state_tensors(), "changes": self._sum.state_tensors()}
        named = {f"{part}.{name}": tensor for part, tensors in kept.items() for name, tensor in tensors.items()}
        return {**named, "momentum": self._momentum}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        if self._sum is not None:
            self._start.load_state(_below("start.", tensors))
            self._sum.load_state(_below("changes.", tensors))
            self._momentum.copy_(tensors["momentum"])


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class DiLoCoStrategy(Strategy):
    """Local steps, and changes of the weights every few of them."""

    auto_order = 3
    keeps_state = True
    costs_quality = True
    syncs_every_step = False
    # The vote, one more on failures in the round, and the meeting before the sum.
    small_messages = 3

    def plan(self, settings: ExchangeConfig) -> ExchangePlan:
        return ExchangePlan(self.name, settings.local_steps)

    def auto_plans(self, settings: ExchangeConfig) -> Iterator[ExchangePlan]:
        local_steps = settings.local_steps
        yield ExchangePlan(self.name, local_steps)
        while (local_steps := 2 * local_steps) <= MOST_LOCAL_STEPS:
            yield ExchangePlan(self.name, local_steps)

    def warm_start(self, config: Config) -> WarmStart | None:
        steps = config.exchange.start_steps
        return WarmStart(config.schedule.warmup_steps if steps is None else steps, ExchangePlan("int4"))

    def sums_like(self, settings: ExchangeConfig) -> Strategy:
        return find_strategy(settings.deltas)

    def make_exchange(self, plan: ExchangePlan, config: Config, vectors: FlatVectors, world: World) -> Exchange:
        start = self.warm_start(config)
        assert start is not None
        return LocalSteps(
            vectors,
            world,
            config.exchange,
            start_steps=start.steps,
            local_steps=plan.local_steps,
            last_step=config.train.max_steps,
            start_sum=sum_between_hosts(start.plan.strategy, config.exchange, vectors.shapes, world),
            change_sum=sum_between_hosts(self.sums_like(config.exchange), config.exchange, vectors.shapes, world),
        )


STRATEGY = DiLoCoStrategy()
