"""Predicts step time, hours and cost of a run under every exchange plan, here and over other links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.cluster.exchange.choose_strategy import Link, StepCosts, asked_plan, choose, plans_for_auto
from tandem.cluster.exchange.strategy import ExchangePlan, Shapes, Strategy, find_strategy, usable_strategies
from tandem.cluster.exchange.traffic import BASELINE, ring_bytes
from tandem.config import Config
from tandem.units import HOUR

MBIT = 1e6 / 8
# What is for rent: a capped port, the usual one, and that of a better data centre.
USUAL_MBIT = (100, 1_000, 10_000)
OTHER_FACTORS = (0.1, 10.0)
# Beyond this slow-down a step spends more time on the network than on everything else, and two hosts are slower
# than one of them alone.
WORST_SLOW_DOWN = 2.0


@dataclass(frozen=True)
class Prediction:
    """A run under one exchange plan."""

    exchange: str
    kind: str
    local_steps: int
    step_seconds: float
    slow_down: float
    """How many times longer a step is than without any exchange."""
    hours: float
    """For max_steps; evaluations and checkpoints come on top."""
    cost: float | None
    """For the price of a machine-hour, all hosts together."""
    chosen: bool
    """Whether the settings lead to it."""
    auto: bool
    """Whether `exchange.kind=auto` leads to it."""

    @property
    def strategy(self) -> Strategy:
        return find_strategy(self.kind)

    @property
    def is_too_slow(self) -> bool:
        return self.slow_down > WORST_SLOW_DOWN


@dataclass(frozen=True)
class OtherLink:
    """The same run over another link, worked out."""

    mbit: float
    allreduce_step_seconds: float
    auto: str
    """What `exchange.kind=auto` would take there."""
    auto_step_seconds: float
    auto_hours: float


@dataclass(frozen=True)
class PlannedRun:
    """The run that is to be predicted."""

    config: Config
    hosts: int
    shapes: Shapes
    price_per_hour: float | None
    """Dollars for one machine."""

    def hours(self, costs: StepCosts, plan: ExchangePlan) -> float:
        """Hours of all steps, a warm start under another plan included."""
        steps, start = self.config.train.max_steps, plan.strategy.warm_start(self.config)
        seconds = steps * costs.step_seconds(plan)
        if start is not None:
            seconds += min(start.steps, steps) * (costs.step_seconds(start.plan) - costs.step_seconds(plan))
        return seconds / HOUR


def predictions(run: PlannedRun, costs: StepCosts) -> tuple[Prediction, ...]:
    """All plans that there are to choose from: those that `auto` weighs first, mildest first."""
    chosen = asked_plan(costs.settings, run.hosts) or choose(costs).plan
    auto, plans = chosen, [chosen]
    if run.hosts > 1:
        auto = choose(costs).plan
        plans = list(plans_for_auto(costs.settings, costs.may_keep_state))
        weighed = {plan.kind for plan in plans}
        others = [each for each in usable_strategies(run.config) if each.name not in weighed]
        plans += [each.plan(costs.settings) for each in others if each.name in costs.sum_seconds]
    return tuple(
        Prediction(
            exchange=str(plan),
            kind=plan.kind,
            local_steps=plan.local_steps,
            step_seconds=costs.step_seconds(plan),
            slow_down=costs.slow_down(plan),
            hours=run.hours(costs, plan),
            cost=None if run.price_per_hour is None else run.price_per_hour * run.hosts * run.hours(costs, plan),
            chosen=plan == chosen,
            auto=plan == auto,
        )
        for plan in plans
    )


def over_link(costs: StepCosts, coding: Mapping[str, float], bytes_per_second: float) -> StepCosts:
    """The costs over a link of another rate: what was not coding grows or shrinks with it."""
    factor = costs.link.bytes_per_second / bytes_per_second
    seconds = {
        kind: coding.get(kind, 0.0) + max(seconds - coding.get(kind, 0.0), 0.0) * factor
        for kind, seconds in costs.sum_seconds.items()
    }
    return replace(costs, link=replace(costs.link, bytes_per_second=bytes_per_second), sum_seconds=seconds)


def with_second_host(run: PlannedRun, costs: StepCosts, once_seconds: float) -> StepCosts:
    """This host and one like it, over a link of 1 Mbit/s at its best; only the update's time is not halved."""
    seconds = {kind: ring_bytes(size, 2) / MBIT for kind, size in payloads(run.config, run.shapes).items()}
    half = once_seconds + (costs.together_seconds - once_seconds) / 2
    return replace(costs, link=Link(MBIT, 0.0), sum_seconds=seconds, together_seconds=half, apart_seconds=half)


def payloads(config: Config, shapes: Shapes) -> dict[str, int]:
    """Bytes that stand for the gradient on the network, by strategy that has a sum of its own."""
    settings = config.exchange
    usable = [each for each in usable_strategies(config) if each.sums_like(settings) is each]
    return {each.name: each.payload_bytes(settings, shapes) for each in usable}


def other_links(
    run: PlannedRun, costs: StepCosts, coding: Mapping[str, float], rates: Sequence[float]
) -> Iterator[OtherLink]:
    """What the run would take over links of other rates, slowest first."""
    for rate in sorted(rates):
        there = over_link(costs, coding, rate * MBIT)
        plan = choose(there).plan
        yield OtherLink(
            mbit=rate,
            allreduce_step_seconds=there.step_seconds(ExchangePlan(BASELINE)),
            auto=str(plan),
            auto_step_seconds=there.step_seconds(plan),
            auto_hours=run.hours(there, plan),
        )
