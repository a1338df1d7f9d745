"""Places of a training at which it is killed, and a memory-mapped note of where each process is.

The product has no hook for this: functions are wrapped from outside, in the test's own processes, and operations on
files and imports are heard through Python's audit events, which are raised before the operation is done.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ELSEWHERE, START_UP, JOINING, STEP, EVALUATION, WRITE, PRUNE = (
    "elsewhere",
    "start-up",
    "joining",
    "step",
    "evaluation",
    "checkpoint write",
    "rename to prune",
)
PLACES = (ELSEWHERE, START_UP, JOINING, STEP, EVALUATION, WRITE, PRUNE)
# The function that is each place: what it calls is inside, unless that is a place of its own.
FUNCTIONS = {
    JOINING: "tandem.cluster.world:_join",
    STEP: "tandem.training.step:Stepper.step",
    EVALUATION: "tandem.training.trainer:Trainer.evaluate",
    WRITE: "tandem.training.checkpoints.checkpoint:write",
    # Called as soon as a checkpoint has its name.
    PRUNE: "tandem.training.checkpoints.checkpoint:remove_oldest",
}
OPERATIONS = {"open", "os.mkdir", "os.chmod", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}

_ENTERED, _LEFT, _NANOSECONDS, _OPERATIONS = range(4)
# In the row of ELSEWHERE, which nobody enters.
_WHERE, _SPRUNG = range(2)


@dataclass(frozen=True)
class Trap:
    """An instant: a visit of a place, and either one of its operations or any time after its beginning."""

    place: str
    visit: int = 1
    operation: int | None = None
    """The process kills itself before this operation of the visit, 0 on entering; None leaves it to whoever waits."""


class Notes:
    """What a process has gone through, in a file that outlives it and that another process reads meanwhile."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        shape = (len(PLACES), 4)
        self._numbers = np.memmap(path, dtype=np.int64, mode="w+" if new else "r+", shape=shape)

    @property
    def where(self) -> str:
        """The place that the process is in, or was in when it ended."""
        return PLACES[self._numbers[0, _WHERE]]

    @where.setter
    def where(self, place: str) -> None:
        self._numbers[0, _WHERE] = PLACES.index(place)

    @property
    def sprung(self) -> bool:
        """Whether the process has come to the place of its trap."""
        return bool(self._numbers[0, _SPRUNG])

    def spring(self) -> None:
        self._numbers[0, _SPRUNG] = 1

    def enter(self, place: str) -> int:
        """Note that a place is entered; how often it has been."""
        row = self._numbers[PLACES.index(place)]
        row[_ENTERED] += 1
        return int(row[_ENTERED])

    def leave(self, place: str, nanoseconds: int, operations: int) -> None:
        """Note that a place is left as it should be."""
        row = self._numbers[PLACES.index(place)]
        row[_LEFT] += 1
        row[_NANOSECONDS] += nanoseconds
        row[_OPERATIONS] = max(row[_OPERATIONS], operations)

    def finished(self, place: str) -> int:
        """How often a place has been left as it should be."""
        return int(self._numbers[PLACES.index(place), _LEFT])

    def seconds(self, place: str) -> float:
        """Mean seconds of a visit."""
        return float(self._numbers[PLACES.index(place), _NANOSECONDS]) / 1e9 / max(self.finished(place), 1)

    def operations(self, place: str) -> int:
        """Operations of the visit that had most."""
        return int(self._numbers[PLACES.index(place), _OPERATIONS])


@dataclass
class _Visit:
    place: str
    number: int
    start: int
    operations: int = 0


class Watch:
    """Keeps the notes of this process, and kills it in its trap."""

    def __init__(self, notes: Notes, trap: Trap | None) -> None:
        self._notes, self._trap = notes, trap
        self._threads = threading.local()
        self._inside: list[_Visit] = []
        """Visits of all threads that have not ended, the newest last."""
        self._start_up = self._enter(START_UP)
        sys.addaudithook(self._hear)

    def wrap(self) -> None:
        """Wrap the functions that are places, under every name they were imported by; the start-up ends here."""
        for place, name in FUNCTIONS.items():
            module, _, path = name.partition(":")
            owner: Any = import_module(module)
            *above, last = path.split(".")
            for each in above:
                owner = getattr(owner, each)
            original = getattr(owner, last)
            wrapped = self._wrapped(place, original)
            setattr(owner, last, wrapped)
            for other in [found for key, found in sys.modules.items() if key.startswith("tandem.")]:
                for alias in [key for key, value in vars(other).items() if value is original]:
                    setattr(other, alias, wrapped)
        self._leave(self._start_up)

    def _wrapped(self, place: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def inside(*args: Any, **kwargs: Any) -> Any:
            visit = self._enter(place)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._forget(visit)
                raise
            self._leave(visit)
            return result

        return inside

    def _enter(self, place: str) -> _Visit:
        visit = _Visit(place, self._notes.enter(place), time.perf_counter_ns())
        self._stack().append(visit)
        self._inside.append(visit)
        self._notes.where = place
        if (trap := self._trap) is not None and (trap.place, trap.visit) == (place, visit.number):
            self._notes.spring()
            self._die_at(visit)
        return visit

    def _leave(self, visit: _Visit) -> None:
        self._notes.leave(visit.place, time.perf_counter_ns() - visit.start, visit.operations)
        self._forget(visit)

    def _forget(self, visit: _Visit) -> None:
        self._stack().remove(visit)
        self._inside.remove(visit)
        self._notes.where = self._inside[-1].place if self._inside else ELSEWHERE

    def _stack(self) -> list[_Visit]:
        """The visits of this thread."""
        if not hasattr(self._threads, "visits"):
            self._threads.visits = []
        visits: list[_Visit] = self._threads.visits
        return visits

    def _hear(self, event: str, _arguments: tuple[Any, ...]) -> None:
        """An audit event: an operation of the visit that this thread is on."""
        if event != "import" and event not in OPERATIONS:
            return
        if stack := self._stack():
            visit = stack[-1]
            if (event == "import") == (visit.place == START_UP):
                visit.operations += 1
                self._die_at(visit)

    def _die_at(self, visit: _Visit) -> None:
        trap = self._trap
        if trap is not None and (trap.place, trap.visit, trap.operation) == (
            visit.place,
            visit.number,
            visit.operations,
        ):
            os.kill(os.getpid(), signal.SIGKILL)
