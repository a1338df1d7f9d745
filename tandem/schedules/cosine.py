"""A linear rise to `schedule.peak`, then half a cosine down to zero at the last step of the run."""

from __future__ import annotations

import math

from tandem.config import Config
from tandem.schedules.schedule import LearningRateSchedule, check_peak, describe_warmup, warmup


def rate(config: Config, step: int) -> float:
    warmup_steps, max_steps = config.schedule.warmup_steps, config.train.max_steps
    progress = max(step - warmup_steps, 0) / max(max_steps - warmup_steps, 1)
    return warmup(config, step) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def describe(config: Config) -> str:
    rises = describe_warmup(config, config.schedule.peak)
    return f"{rises}, then falls along half a cosine to zero at step {config.train.max_steps:,}"


SCHEDULE = LearningRateSchedule(rate, describe, check_peak, depends_on_max_steps=True)
