"""Runs the stages of a prepare: over all processes, with progress, and without repeating what is done."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

from tandem.config import Section
from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.scan import Chunk, Split
from tandem.corpus.progress import ProgressCallback

Result = TypeVar("Result")
Note = TypeVar("Note", bound=Section)

# Calls waiting for each process: none runs dry while results are taken, and few results wait to be taken.
_AHEAD = 2


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


@contextmanager
def stage_runner(jobs: int, log: ResumeLog, progress: ProgressCallback) -> Iterator[StageRunner]:
    """A runner over so many processes; a single one is this process itself."""
    if jobs == 1:
        yield StageRunner(log, progress)
        return
    # Not fork: progress bars and the reading of inputs have threads.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_process)
    try:
        yield StageRunner(log, progress, executor, jobs)
    finally:
        executor.shutdown(cancel_futures=True)


class StageRunner:
    """What all stages share: processes, progress, and notes of what is done."""

    def __init__(
        self, log: ResumeLog, progress: ProgressCallback, executor: ProcessPoolExecutor | None = None, jobs: int = 1
    ) -> None:
        self.log, self.progress = log, progress
        self._executor, self._jobs = executor, jobs

    def run(
        self,
        stage: str,
        calls: Sequence[Callable[[], Result]],
        sizes: Sequence[int] | None = None,
        *,
        unit: str = "",
        done: int = 0,
    ) -> Iterator[Result]:
        """The results of calls, in their order; each moves progress on by its size once its result is dealt with.

        Calls must be such as can be pickled: partials of a module's functions.
        """
        sizes = sizes or [1] * len(calls)
        total = done + sum(sizes)
        self.progress(stage, done, total, unit)
        for size, result in zip(sizes, self._results(calls), strict=True):
            yield result
            self.progress(stage, done := done + size, total, unit)

    def run_noted(
        self, what: str, split: Split, call: Callable[[Chunk], Callable[[], Note]], kind: type[Note]
    ) -> list[Note]:
        """The notes about all chunks of a split, each made by a call or found from an earlier attempt."""
        names = [f"{what}-{split.name}/{chunk.number:05}" for chunk in split.chunks]
        notes = {chunk.number: self.log.read(name, kind) for chunk, name in zip(split.chunks, names, strict=True)}
        missing = [chunk for chunk in split.chunks if notes[chunk.number] is None]
        sizes = [chunk.lines for chunk in missing]
        done = sum(chunk.lines for chunk in split.chunks) - sum(sizes)
        made = self.run(f"{what} {split.name}", [call(chunk) for chunk in missing], sizes, unit="lines", done=done)
        for chunk, note in zip(missing, made, strict=True):
            self.log.finish(names[chunk.number], note)
            notes[chunk.number] = note
        return [note for note in notes.values() if note is not None]

    def chunk_file(self, what: str, number: int) -> Path:
        """Where a stage keeps an array of a chunk until the corpus is finished."""
        return self.log.path(f"{what}/{number:05}.npy")

    def _results(self, calls: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        if self._executor is None:
            yield from (call() for call in calls)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for call in calls:
                waiting.append(self._executor.submit(call))
                if len(waiting) > self._jobs * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise ChildProcessError("a working process was ended; where memory is short, use fewer --jobs") from error


def _start_process() -> None:
    """Leave Ctrl-C to the process that handed out the work, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    # The pool's own thread may hold locks that nobody will ever let go of.
    os._exit(1)
