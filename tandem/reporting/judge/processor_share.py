"""Who had the processors: the run itself, other programs of its hosts, or other guests of the hypervisor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.reporting.run_record import Curve, FloatArray, HostCurves, RunRecord
from tandem.thresholds import DISTURBED_SHARE
from tandem.units import duration, percent

# Stretches that are named one by one; of more, only the longest.
NAMED_STRETCHES = 2
WORDS = {"cpu_others": "other programs", "cpu_steal": "other guests of the hypervisor"}
"""Who else had the processors, by the curve that tells."""


@dataclass(frozen=True)
class Disturbance:
    """Steps during which somebody else had a part of a host's processors."""

    host: str
    first_step: float
    last_step: float
    by: str
    """Other programs, or other guests of the hypervisor: who took more."""
    share: float
    """Mean share of the host's processors that both took."""


@dataclass(frozen=True)
class ProcessorFacts:
    """Whose the processors were, over the stretches of a run."""

    own_share: float
    others_share: float
    steal_share: float | None
    disturbances: list[Disturbance]
    """In the order of their steps, host by host."""
    disturbed_time_share: float
    """Share of the training time in which somebody else had more than DISTURBED_SHARE of a host's processors."""
    undisturbed_step_seconds: float | None
    """Median step of the other stretches; None if there are none, or all were undisturbed."""
    several_hosts: bool

    @property
    def held_up(self) -> bool:
        """Whether the run was disturbed for more than a moment."""
        return self.disturbed_time_share > DISTURBED_SHARE

    def by_at(self, step: float) -> str | None:
        """Who else had the processors at a step; None if nobody."""
        return next((one.by for one in self.disturbances if one.first_step <= step <= one.last_step), None)

    @property
    def words(self) -> str:
        """Who took how much and when, without a full stop; empty if nobody did."""
        if not self.disturbances:
            return ""
        longest = sorted(self.disturbances, key=lambda one: one.first_step - one.last_step)
        named = longest[:NAMED_STRETCHES] if len(longest) <= NAMED_STRETCHES else longest[:1]
        said = [
            f"{one.by} took {percent(one.share)} of the processors{f' of {one.host}' if self.several_hosts else ''} "
            f"from step {one.first_step:,.0f} to {one.last_step:,.0f}"
            for one in sorted(named, key=lambda one: one.first_step)
        ]
        if (more := len(longest) - len(named)) > 0:
            said.append(f"and {more} more time{'s' if more > 1 else ''}")
        if self.undisturbed_step_seconds is not None:
            said.append(f"undisturbed a step takes {duration(self.undisturbed_step_seconds)}")
        return "; ".join(said)


def judge_processors(run: RunRecord) -> ProcessorFacts | None:
    """Whose the processors were; None if no sample tells the run's own time from others'."""
    hosts = [host for host in run.hosts if "cpu_own" in host.curves]
    steps = run.step_seconds.finite
    if not hosts or not len(steps):
        return None
    disturbed = np.zeros(len(steps), dtype=bool)
    found: list[Disturbance] = []
    for host in hosts:
        taken = {curve: _by_stretch(host.curves.get(curve), steps.at) for curve in WORDS}
        loud = np.asarray(sum(taken.values())) > DISTURBED_SHARE
        disturbed |= loud
        found += _disturbances(host, steps.at, taken, loud)
    lengths = np.diff(steps.at, prepend=0.0 if len(steps) == 1 else max(2 * steps.at[0] - steps.at[1], 0.0))
    seconds = steps.values * lengths
    quiet = steps.values[~disturbed]
    steals = [_mean(host, "cpu_steal") for host in hosts if "cpu_steal" in host.curves]
    return ProcessorFacts(
        own_share=float(np.mean([_mean(host, "cpu_own") for host in hosts])),
        others_share=float(np.mean([_mean(host, "cpu_others") for host in hosts])),
        steal_share=float(np.mean(steals)) if steals else None,
        disturbances=found,
        disturbed_time_share=float(seconds[disturbed].sum() / seconds.sum()) if seconds.sum() else 0.0,
        undisturbed_step_seconds=float(np.median(quiet)) if len(quiet) and disturbed.any() else None,
        several_hosts=len(run.hosts) > 1,
    )


def _mean(host: HostCurves, curve: str) -> float:
    return float(np.nanmean(host.curves[curve].values))


def _by_stretch(curve: Curve | None, ends: FloatArray) -> FloatArray:
    """Mean of the samples in each stretch of steps; one without a sample is like the one before it."""
    means = np.zeros(len(ends))
    if curve is None:
        return means
    known = curve.finite
    # A sample names the step under way. What comes after the last stretch belongs to none.
    place = np.searchsorted(ends, known.at)
    inside = place < len(ends)
    counts = np.bincount(place[inside], minlength=len(ends))
    sums = np.bincount(place[inside], weights=known.values[inside], minlength=len(ends))
    seen = np.maximum.accumulate(np.where(counts > 0, np.arange(len(ends)), -1))
    means[counts > 0] = sums[counts > 0] / counts[counts > 0]
    return np.where(seen >= 0, means[seen], 0.0)


def _disturbances(
    host: HostCurves, ends: FloatArray, taken: dict[str, FloatArray], loud: NDArray[np.bool_]
) -> list[Disturbance]:
    """The disturbed stretches of a host, neighbours together."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], loud, [False]]).astype(int)))
    found = []
    for begin, end in edges.reshape(-1, 2):
        means = {curve: float(values[begin:end].mean()) for curve, values in taken.items()}
        found.append(
            Disturbance(
                host=host.name,
                first_step=float(ends[begin - 1]) + 1 if begin else 1.0,
                last_step=float(ends[end - 1]),
                by=WORDS[max(means, key=lambda curve: means[curve])],
                share=sum(means.values()),
            )
        )
    return found
