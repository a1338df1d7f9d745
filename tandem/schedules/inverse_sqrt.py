"""A linear rise to `schedule.peak`, then a fall with the root of the step."""

from __future__ import annotations

import math

from tandem.config import Config
from tandem.schedules.schedule import LearningRateSchedule, check_peak, describe_warmup, warmup


def rate(config: Config, step: int) -> float:
    return warmup(config, step) * math.sqrt(min(config.schedule.warmup_steps / step, 1.0))


def describe(config: Config) -> str:
    return f"{describe_warmup(config, config.schedule.peak)}, then falls with the inverse root of the step"


SCHEDULE = LearningRateSchedule(rate, describe, check_peak)
