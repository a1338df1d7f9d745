"""Training that blows up: how a loss explosion is told from noise, and which data is skipped when a run goes back.

All of it follows from the losses of the steps, which are the same on all processes, and what it remembers is saved with
every checkpoint. So a run that was killed and resumed comes to the same decisions, however often it logs or saves, and
so does one with another number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tandem.config import DivergenceConfig
from tandem.errors import TandemError
from tandem.monitor.records import EXPLODED

# The median of so many steps is the loss that counts: a few hard batches, or a step that float16 skipped, do not move
# it, and when it moves, half of the window has.
WINDOW = 20
# A rise below so many times the median deviation from the median may be noise, which small batches have a lot of: five
# standard deviations of a single step's loss, and about twenty of the median's.
NOISE = 8.0
# So many steps into a run the model is still an untrained one; their losses must not be exceeded, either.
UNTRAINED_STEPS = 5
# From this share of the rise on, a step may be the beginning of an explosion.
SUSPICIOUS_SHARE = 0.5
# The level follows the loss down at once, and up by this share of the rise in each step: a slow drift, as when dropout
# was raised or a learning rate is too high to keep what it had won, is a matter of judgement and not an explosion.
DRIFT_SHARE = 0.001
# What shows in a step's loss was done by the updates before it, and noise may hide the first signs.
LEAD_STEPS = 10


class DivergedError(TandemError):
    """A gradient that is not finite, or a loss that has exploded: raised by every process alike."""

    def __init__(self, step: int, what: str, learning_rate: float) -> None:
        self.step, self.what = step, what
        self.remedy = (
            f"continue with --change and a lower learning rate (now {learning_rate:.2e}), optimizer.clip_norm or "
            "another precision"
        )
        super().__init__(f"{what}; {self.remedy}")

    def add(self, *words: str) -> None:
        """Say more about it, between what happened and what to do."""
        self.args = ("; ".join((self.what, *words, self.remedy)),)


class NonFiniteGradientError(DivergedError):
    """The gradient is infinite or not a number: raised before the weights are touched."""


class LossExplosionError(DivergedError):
    """The loss has risen far above its level, and stays there."""


@dataclass
class LossHistory:
    """The newest losses in nats per token, and the level from which they must not rise; part of the training state.

    Plain negative log-likelihood, so that label smoothing changes nothing. During the warm-up the level falls with the
    loss, and the first steps of a run set it: losses above that of an untrained model are an explosion, too. In an
    emergency checkpoint those since the last log line are missing: a part of their sums is gone with the lost process.
    """

    recent: list[float] = field(default_factory=list)
    level: float | None = None
    """The lowest median so far, but for the drift."""
    scatter: float = 0.0
    """Median deviation from the median, when nothing was suspicious."""
    suspicious_since: int | None = None
    """The step from which on the loss has been higher than it should be."""

    def add(self, step: int, loss: float, rise: float) -> str | None:
        """Add the loss of the next step; the explosion in words, if that is one."""
        if not math.isfinite(loss):
            return None
        self.recent = [*self.recent, loss][-WINDOW:]
        if len(self.recent) < WINDOW:
            return None
        now, begins = median(self.recent), self.level is None
        if begins:
            # By the differences between neighbours, which are small in a climb.
            self.scatter = median(abs(after - before) for before, after in pairwise(self.recent))
        level = median(self.recent[:UNTRAINED_STEPS]) if self.level is None else self.level
        limit = max(rise, NOISE * self.scatter)
        usual = level + SUSPICIOUS_SHARE * limit
        if max(loss, now) <= usual:
            self.suspicious_since = None
            self.scatter = median(abs(each - now) for each in self.recent)
        elif self.suspicious_since is None:
            high = (age for age, each in enumerate(reversed(self.recent)) if each > usual)
            self.suspicious_since = step - (max(high) if begins else 0)
        self.level = min(now, level + DRIFT_SHARE * rise)
        if now <= level + limit:
            return None
        return (
            f"step {step}: {EXPLODED}, from {level:.2f} to {now:.2f} nats per token since step {self.suspicious_since}"
        )


Skipped = Sequence[Sequence[int]]
"""Windows of skipped batches, each the number of its first batch and of the first one after it, in ascending order."""


def batch_number(step: int, skipped: Skipped) -> int:
    """The number of the batch that a step learns from: its own, but for the windows that are skipped."""
    number = step
    for first, end in skipped:
        if number >= first:
            number += end - first
    return number


@dataclass(frozen=True)
class RollBack:
    """Where a run that has diverged goes back to, and what it does differently from there."""

    first_step: int
    """The first step that is taken with other data; whatever checkpoint it starts from must be from before it."""
    skipped: list[list[int]]
    """All windows of batches that are skipped from now on, the new one included."""
    skipped_steps: int
    """Steps whose data is skipped in the new one."""


def plan_roll_back(
    diverged: DivergedError, history: LossHistory, skipped: Skipped, settings: DivergenceConfig
) -> RollBack:
    """Decide what to skip; the error itself, with the reason, if a run is to stop instead.

    The window depends on the losses alone and not on which checkpoints there are: a run that was stopped on the way,
    and has others, must skip the same.
    """
    if not settings.skip_steps:
        raise diverged
    sign = min(history.suspicious_since or diverged.step, diverged.step)
    first_step, before = max(sign - LEAD_STEPS, 1), 0
    for first, end in skipped:
        began = first - before
        if abs(first_step - began) < settings.calm_steps:
            diverged.add(f"the second time, although the data of {end - first} steps from {began:,} on was skipped")
            raise diverged
        before += end - first
    # From a little before the first sign to the end of what is to be skipped after it.
    batch, steps = batch_number(first_step, skipped), sign - first_step + settings.skip_steps
    return RollBack(first_step, sorted([*map(list, skipped), [batch, batch + steps]]), steps)
