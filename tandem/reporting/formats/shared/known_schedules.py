"""Learning-rate schedules of other programs: what their settings promise, in words and as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tandem.reporting.run_record import Schedule


def noam(*, factor: float, width: float, warmup: float, highest: float = math.inf) -> Schedule:
    """The Transformer paper's: factor x width^-0.5 x min(step^-0.5, step x warmup^-1.5), under a ceiling if any."""
    ceiling = f", never above {highest:.1e}" if math.isfinite(highest) else ""
    formula = f"{factor:g} x {width:g}^-0.5 x min(step^-0.5, step x {warmup:g}^-1.5)"
    peak = factor / math.sqrt(width * warmup)
    return inverse_root(peak=peak, warmup=warmup, highest=highest, details=f"{ceiling}: {formula}")


def inverse_root(
    *,
    peak: float,
    warmup: float,
    start: float = 0.0,
    since: float | None = None,
    highest: float = math.inf,
    details: str = "",
) -> Schedule:
    """Linear from `start` to `peak` over `warmup` steps; falls with the root of the step from step `since` on."""
    falls_from = max(warmup if since is None else since, 1.0)

    def rate(step: float) -> float:
        rising = 1.0 if warmup <= 0 else min(1.0, step / warmup)
        return min(highest, (start + rising * (peak - start)) * min(1.0, math.sqrt(falls_from / max(step, 1.0))))

    later = "" if since is None or since == warmup else f" from step {since:,.0f} on"
    explanation = (
        f"rises linearly over {warmup:,.0f} steps to {min(peak, highest):.1e}, then falls with the root of the step"
        f"{later}{details}; it does not look at the loss"
    )
    return Schedule(explanation=explanation, rate=rate)


def constant(peak: float, warmup: float = 0.0) -> Schedule:
    """The same rate throughout, after a linear rise if there is one."""
    rise = f"rises linearly over {warmup:,.0f} steps, then " if warmup > 0 else ""
    return Schedule(
        explanation=f"{rise}stays at {peak:.1e}",
        rate=lambda step: peak if warmup <= 0 else peak * min(1.0, step / warmup),
    )


def by_name(policy: str, settings: Mapping[str, str]) -> Schedule:
    """A schedule of which only the name and the settings are known."""
    values = ", ".join(f"{name} {value}" for name, value in settings.items())
    return Schedule(explanation=f"follows the policy {policy}" + (f" with {values}" if values else ""))
