"""What this process is doing: the phase that its main thread is in, for threads that look from beside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

STARTING, BETWEEN = "start-up", "other work"
EXCHANGE = "exchange"
"""Inside a collective: the process waits for others, or for the network to them."""


class Stay(NamedTuple):
    """A phase, and when it was entered or last showed progress, by `time.perf_counter`."""

    phase: str
    since: float


class Activity:
    """The phase of the main thread; only that thread changes it, any may read it."""

    def __init__(self) -> None:
        self._stay = Stay(STARTING, time.perf_counter())
        self.finished: set[str] = set()
        """Phases that have come to an end at least once."""

    @property
    def stay(self) -> Stay:
        return self._stay

    @contextmanager
    def doing(self, phase: str) -> Iterator[None]:
        """Be in a phase while the block lasts; afterwards the one before goes on."""
        before = self._stay.phase
        self._stay = Stay(phase, time.perf_counter())
        try:
            yield
        finally:
            self.finished.add(phase)
            self._stay = Stay(before, time.perf_counter())

    def started(self) -> None:
        """Note that the start is over: what has no name is from now on what lies between two phases."""
        self._stay = Stay(BETWEEN, time.perf_counter())

    def progressed(self) -> None:
        """Note that a long phase goes on: it is counted from now."""
        self._stay = Stay(self._stay.phase, time.perf_counter())


ACTIVITY = Activity()
"""That of this process, which has one main thread."""
