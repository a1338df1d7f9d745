"""Where the time goes: every second of a run belongs to one part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch

from tandem.cluster.exchange import Exposure
from tandem.cluster.instants import Instant, is_past, now, seconds_between, wait_for

Part = Literal["data", "compute", "communication", "waiting", "optimizer", "evaluation", "checkpoint"]
PARTS: tuple[Part, ...] = get_args(Part)


class Clock:
    """Adds up wall-clock seconds by part; what no part claims is `other`, so the parts always make the whole.

    `communication` is what of the exchange was not hidden behind compute, and `waiting` what of that was spent on
    a slower peer, before it had anything to exchange. On exchanges where nobody looked, waiting is estimated from
    those where somebody did: their mean wait, or their share of waiting, whichever is more.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: list[tuple[Part, Instant, Instant]] = []
        self._exposures: list[tuple[Part | None, Exposure]] = []
        self._mean_wait, self._wait_share = 0.0, 0.0
        self._lap_start = time.perf_counter()

    @contextmanager
    def measure(self, part: Part) -> Iterator[None]:
        """Charge the time of a block to a part."""
        start = now(self._device)
        try:
            yield
        finally:
            self._blocks.append((part, start, now(self._device)))

    def exchanged(self, exposure: Exposure | None, inside: Part | None = None) -> None:
        """Charge an exchange to communication and waiting; it may have happened inside a block of another part."""
        if exposure is not None:
            self._exposures.append((inside, exposure))

    def lap(self, *, wait: bool = True) -> dict[str, float]:
        """Seconds by part since the last lap; their sum is the wall-clock time since then.

        Without waiting for a GPU, what it has not come to yet is left to `other`: it may never come to it.
        """
        seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        if wait:
            # Once, for all moments of the lap.
            wait_for(now(self._device))
        else:
            self._blocks = [block for block in self._blocks if is_past(block[2])]
            self._exposures = [exposure for exposure in self._exposures if is_past(exposure[1].done)]
        for part, start, end in self._blocks:
            seconds[part] += seconds_between(start, end)
        self._split_exposures(seconds)
        stop = time.perf_counter()
        seconds["other"] = stop - self._lap_start - sum(seconds.values())
        self._blocks, self._exposures, self._lap_start = [], [], stop
        return seconds

    def _split_exposures(self, seconds: dict[str, float]) -> None:
        looked = [
            (seconds_between(seen.ready, seen.met), seconds_between(seen.ready, seen.done))
            for _, seen in self._exposures
            if seen.met is not None
        ]
        if looked:
            waits, lasted = (sum(column) for column in zip(*looked, strict=True))
            self._mean_wait, self._wait_share = waits / len(looked), waits / lasted if lasted else 0.0
        for part, seen in self._exposures:
            exposed = seconds_between(seen.ready, seen.done)
            if seen.met is not None:
                wait = seconds_between(seen.ready, seen.met)
            else:
                # Where backward hides most of the exchange, what is left is mostly waiting: the mean says so. Where
                # it hides nothing, a long exchange is long on both counts: the share says so.
                wait = min(exposed, max(self._mean_wait, exposed * self._wait_share))
            seconds["waiting"] += wait
            seconds["communication"] += exposed - wait
            if part is not None:
                seconds[part] -= exposed
