"""What is known of a step once it is taken, in one process and in all together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.cluster.world import World


@dataclass(frozen=True)
class StepResult:
    """Loss sums over this process's target tokens, the number of all processes' tokens, and the gradient's norm."""

    step: int
    target_tokens: int
    objective: float
    nll: float
    gradient_norm: float
    learning_rate: float

    @property
    def loss(self) -> float:
        """Nats per token, of a result over all processes; nan for a step that float16 skipped: its loss may be any."""
        return self.nll / self.target_tokens if math.isfinite(self.gradient_norm) else math.nan


def sum_over_processes(
    world: World, results: Sequence[StepResult], *flags: bool
) -> tuple[list[StepResult], list[bool]]:
    """The results of the same steps with loss sums over all processes; and for each flag, whether any has raised it.

    One small message. A norm is not finite if any process's was not: where hosts take steps of their own, they differ.
    """
    sums = [(each.objective, each.nll, not math.isfinite(each.gradient_norm)) for each in results]
    totals = world.total(*flags, *(number for numbers in sums for number in numbers))
    raised, totals = totals[: len(flags)], totals[len(flags) :]
    summed = [
        replace(each, objective=objective, nll=nll, gradient_norm=math.nan if skipped else each.gradient_norm)
        for each, objective, nll, skipped in zip(results, totals[::3], totals[1::3], totals[2::3], strict=True)
    ]
    return summed, [count > 0 for count in raised]
