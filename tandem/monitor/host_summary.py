"""Means over resource samples: of the GPUs in one sample, and of a host over a stretch of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from tandem.monitor.records import GpuUse, HostSummary, HostUse

# Decimals of what is written every second: 0.01 % of a share, 100 bytes/s of a rate. All digits would double journals.
DIGITS = 4


class GpuShares(NamedTuple):
    """How much of GPUs was in use, as shares of 1; None where that is not known."""

    utilisation: float | None
    memory: float | None
    power: float | None


def gpu_shares(gpu: GpuUse) -> GpuShares:
    return GpuShares(
        gpu.utilisation,
        _ratio(gpu.memory_used_bytes, gpu.memory_total_bytes),
        _ratio(gpu.watts, gpu.watts_cap),
    )


def mean_gpu_shares(gpus: Sequence[GpuUse]) -> GpuShares:
    """Each share's mean over the cards that report it."""
    if not gpus:
        return GpuShares(None, None, None)
    columns = zip(*map(gpu_shares, gpus), strict=True)
    known = ([share for share in column if share is not None] for column in columns)
    return GpuShares(*(fmean(shares) if shares else None for shares in known))


def summarise(samples: Sequence[HostUse], seconds: Mapping[str, float]) -> HostSummary:
    """Means over samples, weighted by how long each lasted; `seconds` are those of the same steps, by part."""
    weights = [use.seconds for use in samples]

    def mean(values: Iterable[float]) -> float:
        return round(fmean(values, weights), DIGITS)

    def mean_if_known(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return mean(known) if len(known) == len(values) else None

    last, by_card = samples[-1], _utilisation_by_card(samples)
    gpus = GpuShares(*map(mean_if_known, zip(*(mean_gpu_shares(use.gpus) for use in samples), strict=True)))
    return HostSummary(
        host=last.host,
        cpu=mean(use.cpu for use in samples),
        memory=mean(use.memory_used_bytes / use.memory_total_bytes for use in samples),
        sent_mbit_per_second=mean(use.sent_mbit_per_second for use in samples),
        received_mbit_per_second=mean(use.received_mbit_per_second for use in samples),
        link_mbit_per_second=last.link_mbit_per_second,
        gpu_count=len(last.gpus),
        gpu_utilisation=gpus.utilisation,
        gpu_utilisation_least=min(by_card, default=None),
        gpu_utilisation_most=max(by_card, default=None),
        gpu_memory=gpus.memory,
        gpu_power=gpus.power,
        seconds={part: round(spent, DIGITS) for part, spent in seconds.items()},
        cpu_own=mean_if_known([use.cpu_own for use in samples]),
        cpu_steal=mean_if_known([use.cpu_steal for use in samples]),
    )


def _utilisation_by_card(samples: Sequence[HostUse]) -> list[float]:
    """Mean utilisation of each card over the samples that have it; cards without a UUID are known by their place."""
    known: dict[str | int, list[float]] = {}
    for use in samples:
        for place, gpu in enumerate(use.gpus):
            if gpu.utilisation is not None:
                known.setdefault(gpu.uuid or place, []).append(gpu.utilisation)
    return [round(fmean(shares), DIGITS) for shares in known.values()]


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
