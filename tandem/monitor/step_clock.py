"""Splits wall-clock time into parts (data, compute, communication, ...): every second of a run belongs to one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from tandem.monitor.activity import ACTIVITY
from tandem.monitor.device_clock import Instant, is_past, now, seconds_between, wait_for

StepPart = Literal["data", "compute", "communication", "waiting", "optimizer", "evaluation", "checkpoint"]
STEP_PARTS: tuple[StepPart, ...] = get_args(StepPart)


@dataclass(frozen=True)
class Exposure:
    """Exposed communication: a time in which this process did nothing but take part in an exchange."""

    ready: Instant
    """When its own contribution was ready."""
    met: Instant | None
    """When all others had theirs, too; None if that was not measured."""
    done: Instant
    """When it had the result."""


class StepClock:
    """Adds up wall-clock seconds by part; what no part claims is `other`, so the parts always make the whole.

    `communication` is what of the exchange was not hidden behind compute, and `waiting` what of that was spent on
    a slower peer, before it had anything to exchange. Where that was not measured, waiting is estimated from the
    exchanges where it was: their mean wait, or their share of waiting, whichever is more. An exchange during which a
    peer is known to have been silent waited for that peer, and so did what no part claims. A time in which this process
    itself was stopped is no part's, but `other`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: list[tuple[StepPart, Instant, Instant]] = []
        self._exposures: list[tuple[StepPart | None, Exposure]] = []
        self._mean_wait, self._wait_share = 0.0, 0.0
        self._silences: dict[int, tuple[float, float]] = {}
        """When each rank was silent, from and to; the end of one that lasts is infinite."""
        self._sleeps: list[tuple[float, float]] = []
        """When this process was stopped, from and to."""
        self._lap_start = time.perf_counter()

    def slept(self, seconds: float) -> None:
        """Note that this process did not run for some seconds until now."""
        present = time.perf_counter()
        self._sleeps.append((present - seconds, present))

    def peer_silent(self, rank: int, seconds: float) -> None:
        """Note that a peer has been silent for some seconds: an exchange meanwhile is a wait for it."""
        self._silences[rank] = (time.perf_counter() - seconds, math.inf)

    def peer_returned(self, rank: int) -> None:
        """Note that a silent peer goes on."""
        if rank in self._silences:
            self._silences[rank] = (self._silences[rank][0], time.perf_counter())

    @contextmanager
    def measure(self, part: StepPart) -> Iterator[None]:
        """Charge the time of a block to a part."""
        start = now(self._device)
        try:
            with ACTIVITY.doing(part):
                yield
        finally:
            self._blocks.append((part, start, now(self._device)))

    def exchanged(self, exposure: Exposure | None, inside: StepPart | None = None) -> None:
        """Charge an exchange to communication and waiting; it may have happened inside a block of another part."""
        if exposure is not None:
            self._exposures.append((inside, exposure))

    def lap(self, *, wait: bool = True) -> dict[str, float]:
        """Seconds by part since the last lap; their sum is the wall-clock time since then.

        Without waiting for a GPU, what it has not done yet is counted as `other`: it may never do it.
        """
        seconds: dict[str, float] = dict.fromkeys(STEP_PARTS, 0.0)
        if wait:
            # Once, for all timestamps of the lap.
            wait_for(now(self._device))
        else:
            self._blocks = [block for block in self._blocks if is_past(block[2])]
            self._exposures = [exposure for exposure in self._exposures if is_past(exposure[1].done)]
        silent = self._add_blocks(seconds) + self._split_exposures(seconds)
        stop = time.perf_counter()
        seconds["other"] = stop - self._lap_start - sum(seconds.values())
        # All processes also meet outside of exchanges and blocks, such as when one has a trouble to tell.
        waited = max(min(self._silent_between(self._lap_start, stop) - silent, seconds["other"]), 0.0)
        seconds["waiting"] += waited
        seconds["other"] -= waited
        self._blocks, self._exposures, self._sleeps, self._lap_start = [], [], [], stop
        self._silences = {rank: span for rank, span in [*self._silences.items()] if span[1] > stop}
        return seconds

    def _awake_between(self, start: Instant, end: Instant) -> float:
        """Seconds in which this process was not stopped; a GPU, whose clock is another, may have worked on."""
        seconds = seconds_between(start, end)
        if isinstance(start, float) and isinstance(end, float):
            seconds -= sum(max(min(end, woken) - max(start, asleep), 0.0) for asleep, woken in self._sleeps)
        return seconds

    def _add_blocks(self, seconds: dict[str, float]) -> float:
        """Charge the blocks of this lap; seconds of them in which a peer was silent."""
        silent = 0.0
        for part, start, end in self._blocks:
            lasted = self._awake_between(start, end)
            silent += self._silent_during(start, end, lasted)
            seconds[part] += lasted
        return silent

    def _split_exposures(self, seconds: dict[str, float]) -> float:
        """Charge the exchanges of this lap; seconds of those outside of blocks in which a peer was silent."""
        silent_outside = 0.0
        measured = [
            (self._awake_between(exposure.ready, exposure.met), self._awake_between(exposure.ready, exposure.done))
            for _, exposure in self._exposures
            if exposure.met is not None
        ]
        if measured:
            waits, lasted = (sum(column) for column in zip(*measured, strict=True))
            self._mean_wait, self._wait_share = waits / len(measured), waits / lasted if lasted else 0.0
        for part, exposure in self._exposures:
            exposed = self._awake_between(exposure.ready, exposure.done)
            if exposure.met is not None:
                wait = self._awake_between(exposure.ready, exposure.met)
            else:
                # Where backward hides most of the exchange, what is left is mostly waiting: the mean says so. Where
                # it hides nothing, a long exchange is long on both counts: the share says so.
                wait = min(exposed, max(self._mean_wait, exposed * self._wait_share))
            silent = self._silent_during(exposure.ready, exposure.done, exposed)
            wait = max(wait, silent)
            seconds["waiting"] += wait
            seconds["communication"] += exposed - wait
            if part is None:
                silent_outside += silent
            else:
                seconds[part] -= exposed
        return silent_outside

    def _silent_during(self, start: Instant, end: Instant, seconds: float) -> float:
        """Seconds of a block or exchange in which some peer was silent; on a GPU, whose clock is another, at most."""
        if not isinstance(start, float) or not isinstance(end, float):
            start, end = self._lap_start, time.perf_counter()
        return min(self._silent_between(start, end), seconds)

    def _silent_between(self, start: float, end: float) -> float:
        """Seconds in which some peer was silent and this process was not stopped."""
        # Copied, because a silence is told by another thread.
        spans = [*self._silences.values()]
        return max([0.0, *(self._awake_between(max(start, silent), min(end, back)) for silent, back in spans)])
