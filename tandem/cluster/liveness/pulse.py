"""A process's heartbeat: what it says of itself every second, and whether its main thread hangs.

A phase that is merely long is no fault, so four things must come together before a main thread hangs:

- it has been in one phase for far longer than ever before, or has never finished one like it and takes minutes;
- it is at rest: a thread that computes uses a processor, or stands in the queue for one on a crowded machine;
- so are the other threads, which it may wait for, and no data moves, here or in a process that it has started: a
  checkpoint from a slow disk or mirror takes its time;
- somebody waits for it, which only the process that hears all others can tell.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from tandem.monitor.activity import ACTIVITY, BETWEEN, EXCHANGE, Stay


@dataclass
class Timing:
    """How often hearts beat and how long others wait before they speak, in seconds."""

    beat: float = 1.0
    silent: float = 10.0
    """Without a heartbeat for so long a process is silent: its beats stay away for no other reason, and a user who
    looks is to be told within 15 seconds."""
    hanging: float = 10.0
    """A phase is not suspected of hanging before."""
    hanging_first: float = 120.0
    """Nor, if none like it has ended before: a first step may compile."""
    hanging_checkpoint: float = 600.0
    """Nor a checkpoint: its disk may be slow and far away, and whoever waits for it is at rest."""
    times_longest: float = 3.0
    """Nor before it has lasted so many times longer than the longest one like it."""
    last_words: float = 5.0
    """How long the main thread may take to notice by itself that a peer has ended."""
    last_resort: float = 600.0
    """A process that should have ended for want of a peer, and has not after so long, is ended: it may be saving."""


TIMING = Timing()
# A main thread that wants less of a processor than this is at rest; waiting for a lock or a disk takes next to none.
RESTING_SHARE = 0.05
# One that moves fewer bytes a second waits in vain; a program that looks for a notice now and then moves less, too.
MOVING_BYTES = 100_000
# Both looked at over so many beats.
RESTING_BEATS = 5
# Phases that are short even when they come for the first time: nothing is compiled there.
SOON_OVER = {"data", BETWEEN}


class Beat(NamedTuple):
    """What a heartbeat says: phase of the main thread, seconds in it, last whole step, and whether it seems to hang."""

    phase: str
    seconds: float
    step: int
    hangs: bool


class Pulse:
    """Looks at this process's main thread, once for every beat."""

    def __init__(self, timing: Timing, step: Callable[[], int]) -> None:
        self._timing, self._step = timing, step
        self._longest: dict[str, float] = {}
        self._before = ACTIVITY.stay
        self._hung = False
        self._used: deque[tuple[float, float]] = deque(maxlen=RESTING_BEATS + 1)
        self._beside: deque[tuple[float, dict[int, int], dict[int, float]]] = deque(maxlen=RESTING_BEATS + 1)
        """Bytes moved and seconds worked so far."""
        self._clock = _main_thread_clock()

    def beat(self, now: float) -> Beat:
        stay = ACTIVITY.stay
        if stay.phase != self._before.phase and not self._hung:
            # Whatever came between was shorter than a beat.
            lasted = stay.since - self._before.since
            self._longest[self._before.phase] = max(self._longest.get(self._before.phase, 0.0), lasted)
        self._before = stay
        self._used.append((now, self._clock()))
        suspected = now - stay.since > self._limit(stay) and stay.phase != EXCHANGE and self._at_rest()
        if not suspected:
            self._beside.clear()
        self._hung = suspected and not self._may_wait_for_work(now)
        return Beat(stay.phase, max(now - stay.since, 0.0), self._step(), self._hung)

    def slept(self) -> None:
        """Forget what the main thread seemed to do while the whole process was stopped."""
        self._before = ACTIVITY.stay
        self._used.clear()
        self._beside.clear()

    def _limit(self, stay: Stay) -> float:
        timing = self._timing
        floor = timing.hanging
        if stay.phase == "checkpoint":
            floor = timing.hanging_checkpoint
        elif stay.phase not in ACTIVITY.finished and stay.phase not in SOON_OVER:
            floor = timing.hanging_first
        return max(floor, timing.times_longest * self._longest.get(stay.phase, 0.0))

    def _at_rest(self) -> bool:
        if len(self._used) <= RESTING_BEATS:
            return False
        (start, used), (end, used_since) = self._used[0], self._used[-1]
        return used_since - used < RESTING_SHARE * (end - start)

    def _may_wait_for_work(self, now: float) -> bool:
        """Whether data moves or another thread works, or it is too early to tell.

        Not looked at before there is a suspicion: it costs more.
        """
        self._beside.append((now, _moved_bytes(), _worked_seconds()))
        if len(self._beside) <= RESTING_BEATS:
            return True
        (start, moved, worked), (end, moved_since, worked_since) = self._beside[0], self._beside[-1]
        if _growth(moved, moved_since) >= MOVING_BYTES * (end - start):
            return True
        return _growth(worked, worked_since) >= RESTING_SHARE * (end - start)


def _main_thread_clock() -> Callable[[], float]:
    """Reads for how long the main thread has used a processor or stood in the queue for one, in seconds.

    Where the system does not say, the queue is left out; where it says nothing at all, the thread seems at rest.
    """
    main = threading.main_thread()
    queue = Path(f"/proc/self/task/{main.native_id}/schedstat")
    if queue.exists():
        return lambda: _scheduled_seconds(queue)
    if main.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return lambda: 0.0
    clock = time.pthread_getcpuclockid(main.ident)
    return lambda: time.clock_gettime(clock)


def _growth(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """By how much all have grown together that are there now."""
    return sum(value - before.get(key, 0) for key, value in after.items())


def _worked_seconds() -> dict[int, float]:
    """For how long each thread has used a processor or stood in the queue for one; nothing where nobody says."""
    worked = {}
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            # It may have ended.
            with suppress(OSError):
                worked[int(task.name)] = _scheduled_seconds(task / "schedstat")
    return worked


def _scheduled_seconds(path: Path) -> float:
    """Seconds on a processor and in the queue for one, by the kernel's account of a thread."""
    return sum(map(int, path.read_text().split()[:2])) / 1e9


def _moved_bytes() -> dict[int, int]:
    """Bytes that the main thread (0) and each process that this one has started (by id) have read and written so far.

    Nothing where the system does not say.
    """
    moved = {}
    with suppress(OSError):
        lines = Path(f"/proc/self/task/{threading.main_thread().native_id}/io").read_text().splitlines()
        counts = {name: int(count) for name, _, count in (line.partition(": ") for line in lines)}
        # A mapped file is only counted where it comes from the disk.
        moved[0] = sum(counts[name] for name in ("rchar", "wchar", "read_bytes", "write_bytes"))
    for child in psutil.Process().children(recursive=True):
        # It may have ended, or belong to somebody else.
        with suppress(psutil.Error, AttributeError):
            moved[child.pid] = child.io_counters().read_chars + child.io_counters().write_chars
    return moved
