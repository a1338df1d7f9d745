"""What a run would take: step time, hours and cost of each way of exchanging, here and over other links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.cluster.probe import Link
from tandem.cluster.strategies import Circumstances, Plan, choose, mild_to_strong
from tandem.cluster.traffic import BYTES_A_VALUE, ring_bytes
from tandem.config import Config

MBIT = 1e6 / 8
# What is for rent: a capped port, the usual one, and that of a better data centre.
USUAL_MBIT = (100, 1_000, 10_000)
OTHER_FACTORS = (0.1, 10.0)
HOUR = 3600


@dataclass(frozen=True)
class Prediction:
    """A run in one way of exchanging."""

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
class Task:
    """What is to be predicted for."""

    config: Config
    hosts: int
    values: int
    """Length of the gradient."""
    price_per_hour: float | None
    """Of one machine."""

    def predict(self, seen: Circumstances, plan: Plan, chosen: Plan, auto: Plan) -> Prediction:
        """The run in one way."""
        hours = self.hours(seen, plan)
        return Prediction(
            exchange=str(plan),
            kind=plan.kind,
            local_steps=plan.local_steps,
            step_seconds=seen.step_seconds(plan),
            slow_down=seen.slow_down(plan),
            hours=hours,
            cost=None if self.price_per_hour is None else self.price_per_hour * self.hosts * hours,
            chosen=plan == chosen,
            auto=plan == auto,
        )

    def hours(self, seen: Circumstances, plan: Plan) -> float:
        """All steps; the first ones of a run with local steps are taken together, with four bits."""
        steps, settings, together = self.config.train.max_steps, self.config.exchange, 0
        if plan.kind == "diloco":
            start = settings.start_steps if settings.start_steps is not None else self.config.schedule.warmup_steps
            together = min(start, steps)
        seconds = (steps - together) * seen.step_seconds(plan)
        if together:
            seconds += together * seen.step_seconds(Plan("int4"))
        return seconds / HOUR


def planned(task: Task, seen: Circumstances) -> Plan:
    """The way that the settings lead to; inside one host everything is summed in full precision."""
    settings = task.config.exchange
    if task.hosts == 1:
        return Plan("allreduce")
    if settings.kind == "auto":
        return choose(settings, seen).plan
    return Plan(settings.kind, settings.local_steps if settings.kind == "diloco" else 1)


def predictions(task: Task, seen: Circumstances) -> tuple[Prediction, ...]:
    """What there is to choose from, mildest first."""
    chosen = planned(task, seen)
    auto, plans = chosen, [chosen]
    if task.hosts > 1:
        auto = choose(task.config.exchange, seen).plan
        plans = list(mild_to_strong(task.config.exchange, seen.remembers))
        if "powersgd" in seen.sum_seconds:
            plans.append(Plan("powersgd"))
    return tuple(task.predict(seen, plan, chosen, auto) for plan in plans)


def over(seen: Circumstances, coding: Mapping[str, float], bytes_per_second: float) -> Circumstances:
    """The same circumstances over a link of another rate: what was not coding grows or shrinks with it."""
    factor = seen.link.bytes_per_second / bytes_per_second
    seconds = {
        kind: coding.get(kind, 0.0) + max(seconds - coding.get(kind, 0.0), 0.0) * factor
        for kind, seconds in seen.sum_seconds.items()
    }
    return replace(seen, link=replace(seen.link, bytes_per_second=bytes_per_second), sum_seconds=seconds)


def with_second_host(seen: Circumstances, once_seconds: float, values: int) -> Circumstances:
    """This host and one like it, over a link of 1 Mbit/s at its best; of a step only the update is not halved."""
    seconds = {kind: ring_bytes(int(values * size), 2) / MBIT for kind, size in BYTES_A_VALUE.items()}
    half = once_seconds + (seen.together_seconds - once_seconds) / 2
    return replace(seen, link=Link(MBIT, 0.0), sum_seconds=seconds, together_seconds=half, apart_seconds=half)


def other_links(
    task: Task, seen: Circumstances, coding: Mapping[str, float], rates: Sequence[float]
) -> list[OtherLink]:
    """What the run would take over links of other rates, slowest first."""
    found = []
    for rate in sorted(rates):
        there = over(seen, coding, rate * MBIT)
        plan = choose(task.config.exchange, there).plan
        found.append(
            OtherLink(
                mbit=rate,
                allreduce_step_seconds=there.step_seconds(Plan("allreduce")),
                auto=str(plan),
                auto_step_seconds=there.step_seconds(plan),
                auto_hours=task.hours(there, plan),
            )
        )
    return found
