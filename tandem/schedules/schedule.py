"""What a learning rate schedule is, and the pieces that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tandem.config import Config
from tandem.registry import SCHEDULES
from tandem.validation import Fault


@dataclass(frozen=True)
class LearningRateSchedule:
    """The learning rate as a pure function of the step, with its words for the report."""

    rate: Callable[[Config, int], float]
    """The learning rate of a step; steps count from 1."""
    describe: Callable[[Config], str]
    """How it moves, as the report says it: "rises linearly over 100 steps to 1.00e-03, then stays"."""
    check: Callable[[Config], Iterable[Fault]] = lambda config: ()
    """What is wrong with the settings for this schedule."""
    depends_on_max_steps: bool = False
    """Whether a run that is made longer or shorter takes other steps on the way."""


def schedule_of(config: Config) -> LearningRateSchedule:
    """The schedule that the settings name."""
    found: LearningRateSchedule = SCHEDULES.get(config.schedule.kind)
    return found


def learning_rate(config: Config, step: int) -> float:
    """The learning rate of a step; steps count from 1."""
    return schedule_of(config).rate(config, step)


def warmup(config: Config, step: int) -> float:
    """The linear rise to `schedule.peak`, which it stays at after the warm-up."""
    peak, steps = config.schedule.peak, config.schedule.warmup_steps
    assert peak is not None, "check_peak has seen to it"
    return peak * step / steps if step < steps else peak


def describe_warmup(config: Config, peak: float | None, source: str = "") -> str:
    return f"rises linearly over {config.schedule.warmup_steps:,} steps to {peak:.2e}{source}"


def check_peak(config: Config) -> Iterator[Fault]:
    """Refuse a schedule without the learning rate that its warm-up rises to."""
    if config.schedule.peak is None:
        message = f"{config.schedule.kind} needs the highest learning rate; set it, for example to 1e-3"
        yield Fault("schedule.peak", message, "schedule.kind")
