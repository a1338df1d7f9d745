"""A pool of processes over all cores, with work handed out a little ahead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks waiting for each worker: none runs dry while results are taken, and few results wait to be taken.
_AHEAD = 2


class Workers:
    """Works through tasks in other processes; the answers come in the order of the tasks."""

    def __init__(self, executor: ProcessPoolExecutor | None, jobs: int) -> None:
        self._executor = executor
        self._jobs = jobs

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """What a function (of a module, so that processes find it) makes of each task."""
        if self._executor is None:
            yield from map(function, tasks)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                waiting.append(self._executor.submit(function, task))
                if len(waiting) > self._jobs * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise ChildProcessError("a working process was ended; where memory is short, use fewer --jobs") from error


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


@contextmanager
def working(jobs: int) -> Iterator[Workers]:
    """Workers for a while; a single one is this process itself."""
    if jobs == 1:
        yield Workers(None, 1)
        return
    # Not fork: progress bars and the reading of inputs have threads.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start)
    try:
        yield Workers(executor, jobs)
    finally:
        executor.shutdown(cancel_futures=True)


def _start() -> None:
    """Leave Ctrl-C to the process that handed out the work, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    # The pool's own thread may hold locks that nobody will ever let go of.
    os._exit(1)
