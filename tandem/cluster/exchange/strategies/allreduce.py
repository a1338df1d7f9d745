"""allreduce: every process sums its gradient with all others, in float32, while backward still computes."""

from __future__ import annotations

from tandem.cluster.exchange.exchange import Exchange, Exchanged, FlatVectors, Votes
from tandem.cluster.exchange.gradient_reducer import GradientReducer
from tandem.cluster.exchange.strategy import ExchangePlan, Strategy
from tandem.cluster.exchange.traffic import SAMPLED_EVERY
from tandem.cluster.world import World
from tandem.config import Config
from tandem.model.memory_estimate import FLOAT32
from tandem.monitor.device_clock import now
from tandem.monitor.step_clock import Exposure


class AllReduce(Exchange):
    """Every process ends a step's last backward pass with the gradient of the global batch, in full precision.

    Buckets of gradients travel while backward still computes others, where the backend allows it.
    """

    def __init__(self, vectors: FlatVectors, world: World) -> None:
        self._world = world
        group = world.group if world.size > 1 else None
        self._reducer = GradientReducer(vectors.leaves, vectors.gradient, group, world.device)

    def before_backward(self, step: int, *, first: bool, last: bool, passes: int = 1) -> None:
        self._reducer.expect(first=first, exchanges=last and not self._sampled(step), passes=passes)

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

    def pop_sent_bytes(self) -> int:
        taken, self._reducer.bytes = self._reducer.bytes, 0
        return taken

    def _sampled(self, step: int) -> bool:
        return self._world.size > 1 and step % SAMPLED_EVERY == 1


class AllReduceStrategy(Strategy):
    """Float32 sum over all processes, hidden behind backward where possible."""

    auto_order = 0
    bytes_per_value = FLOAT32
    overlaps_backward = True

    def make_exchange(self, plan: ExchangePlan, config: Config, vectors: FlatVectors, world: World) -> Exchange:
        return AllReduce(vectors, world)


STRATEGY = AllReduceStrategy()
