"""The schedule of the Transformer paper: it rises linearly, then falls with the root of the step."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.config import Config
from tandem.schedules.schedule import LearningRateSchedule, describe_warmup
from tandem.validation import Fault


def rate(config: Config, step: int) -> float:
    """Scaled to the model's width."""
    settings = config.schedule
    factor = settings.scale * config.model.d_model**-0.5
    return float(factor * min(step**-0.5, step * settings.warmup_steps**-1.5))


def describe(config: Config) -> str:
    source = f" (scale {config.schedule.scale:g}, width {config.model.d_model})"
    rises = describe_warmup(config, rate(config, config.schedule.warmup_steps), source)
    return f"{rises}, then falls with the inverse root of the step"


def check(config: Config) -> Iterator[Fault]:
    if config.schedule.peak is not None:
        message = "noam takes its height from schedule.scale; remove peak or choose another kind"
        yield Fault("schedule.peak", message, "schedule.kind")


SCHEDULE = LearningRateSchedule(rate, describe, check)
