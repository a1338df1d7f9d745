"""What an exchange strategy is: one object with its name, its cost for predictions, and the exchange that it makes.

Each is a module of `strategies/`, and a line in tandem.registry.EXCHANGES.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.distributed import ProcessGroup

from tandem.cluster.exchange.exchange import Exchange, FlatVectors, SumBetweenHosts
from tandem.cluster.exchange.traffic import BASELINE
from tandem.cluster.exchange.vector_sum import CompressedSum, VectorSum
from tandem.cluster.world import World
from tandem.config import Config, ExchangeConfig
from tandem.registry import EXCHANGES

# A strategy is hidden if it makes a step at most this much longer.
HIDDEN_SLOW_DOWN = 1.10

Shapes = Sequence[Sequence[int]]
"""Shapes of a model's parameters, in the order of the flat gradient."""


@dataclass(frozen=True)
class ExchangePlan:
    """The strategy of a run, with how many local steps it takes between two exchanges."""

    kind: str
    local_steps: int = 1

    def __str__(self) -> str:
        return f"{self.kind} with {self.local_steps} local steps" if self.local_steps > 1 else self.kind

    @property
    def strategy(self) -> Strategy:
        return find_strategy(self.kind)


@dataclass(frozen=True)
class WarmStart:
    """First steps of a run that are taken under another plan."""

    steps: int
    plan: ExchangePlan


class Strategy:
    """A way in which hosts put their gradients or weights together; inside a host it is always a float32 sum.

    A subclass sets what differs from these defaults, which are those of a compressed sum of gradients in every step,
    and makes its sum in `make_sum`, or its whole exchange in `make_exchange`.
    """

    name: str
    """What the settings call it, given by `find_strategy`."""
    auto_order: int | None = None
    """Place in the order in which `exchange.kind=auto` weighs strategies, mildest first; None is never weighed."""
    accepted_slow_down = HIDDEN_SLOW_DOWN
    """`auto` takes it if a step becomes at most so many times longer."""
    bytes_per_value: float | None = None
    """Bytes in which one float32 value travels; None if that depends on the shapes of the parameters."""
    keeps_state = False
    """Whether it keeps parts of gradients for later steps, which float16's changing loss scale forbids."""
    costs_quality = False
    """Whether a model trained so is measurably worse (docs/slow-networks.md)."""
    overlaps_backward = False
    """Whether gradients travel while backward still computes."""
    syncs_every_step = True
    """Whether hosts wait for each other in every step."""
    small_messages = 1
    """Messages that an exchange waits for beside the sum: the vote, which is also the meeting before the sum."""
    grows_with_length = True
    """Whether a sum's time can be extended from shorter vectors; otherwise only the whole gradient is timed."""
    compressor: ClassVar[type[CompressedSum]]
    """The sum between hosts, where that needs no more than the length of the vector."""

    def plan(self, settings: ExchangeConfig) -> ExchangePlan:
        """The plan where a user asks for this strategy."""
        return ExchangePlan(self.name)

    def auto_plans(self, settings: ExchangeConfig) -> Iterator[ExchangePlan]:
        """The plans that `auto` weighs, mildest first."""
        yield self.plan(settings)

    def warm_start(self, config: Config) -> WarmStart | None:
        """First steps that are taken in another way."""
        return None

    def sums_like(self, settings: ExchangeConfig) -> Strategy:
        """The strategy whose sum between hosts it uses: itself, unless it sums less often what another one sums."""
        return self

    def payload_bytes(self, settings: ExchangeConfig, shapes: Shapes) -> int:
        """Bytes that stand for a gradient of these shapes on the network."""
        assert self.bytes_per_value is not None, "otherwise overridden"
        return int(values_in(shapes) * self.bytes_per_value)

    def state_settings(self, settings: ExchangeConfig) -> dict[str, object]:
        """Settings without which saved state is of no use."""
        return {"deltas": settings.deltas, "powersgd_rank": settings.powersgd_rank}

    def make_sum(
        self, group: ProcessGroup, settings: ExchangeConfig, shapes: Shapes, device: torch.device
    ) -> VectorSum:
        """The sum of one vector over the first processes of all hosts."""
        return self.compressor(group, values_in(shapes), device)

    def make_exchange(self, plan: ExchangePlan, config: Config, vectors: FlatVectors, world: World) -> Exchange:
        """The exchange at work on a model: by default a sum between hosts after every backward pass."""
        return SumBetweenHosts(vectors, world, sum_between_hosts(self, config.exchange, vectors.shapes, world))


def values_in(shapes: Shapes) -> int:
    """Length of a gradient of these shapes."""
    return sum(math.prod(shape) for shape in shapes)


def find_strategy(kind: str) -> Strategy:
    """The strategy of a name, or of a place as `module:object`."""
    # A copy, because the object may be another's, and known by several names; one from outside of the package is known
    # by its place, by which every process and a later session find it again.
    found: Strategy = copy(EXCHANGES.get(kind))
    found.name = kind
    return found


def known_strategies() -> list[Strategy]:
    """The strategies that come with Tandem: those that `auto` weighs first, mildest first."""
    found = [find_strategy(name) for name in EXCHANGES.names]
    return sorted(found, key=lambda each: (each.auto_order is None, each.auto_order))


def usable_strategies(config: Config) -> list[Strategy]:
    """The known strategies, and the one that the settings name, that go together with the run's precision."""
    found = known_strategies()
    if config.exchange.kind != "auto" and config.exchange.kind not in EXCHANGES.names:
        found.append(find_strategy(config.exchange.kind))
    return [each for each in found if may_keep_state(config) or not each.keeps_state]


def may_keep_state(config: Config) -> bool:
    """Whether gradients keep their unit from step to step; float16's loss scale changes it."""
    return config.train.precision != "float16"


def sum_between_hosts(strategy: Strategy, settings: ExchangeConfig, shapes: Shapes, world: World) -> VectorSum | None:
    """A strategy's sum on the first process of a host; None on the others."""
    if world.leaders_group is None:
        return None
    return strategy.make_sum(world.leaders_group, settings, shapes, world.device)


def make_exchange(plan: ExchangePlan, config: Config, vectors: FlatVectors, world: World) -> Exchange:
    """The exchange of a plan; on a single host there is nothing to save, so it is always a plain sum."""
    strategy = plan.strategy if len(world.hosts) > 1 else find_strategy(BASELINE)
    return strategy.make_exchange(plan, config, vectors, world)
