"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from tandem.config import Config


def learning_rate(config: Config, step: int) -> float:
    """The learning rate of a step; steps count from 1."""
    schedule = config.schedule
    warmup = schedule.warmup_steps
    if schedule.kind == "noam":
        # The original recipe: rises linearly, falls with the root of the step, scaled to the model's width.
        return float(schedule.scale * config.model.d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    assert schedule.peak is not None, "config validation guarantees a peak for these schedules"
    if step <= warmup:
        return schedule.peak * step / warmup
    if schedule.kind == "inverse_sqrt":
        return schedule.peak * math.sqrt(warmup / step)
    progress = (step - warmup) / max(config.train.max_steps - warmup, 1)
    return schedule.peak * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
