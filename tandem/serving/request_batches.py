"""Batches across requests: the sentences of all requests wait in one queue, and worker threads take them in batches.

An idle worker takes what there is at once. Under load the queue fills while the workers are busy, and batches grow by
themselves.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tandem.allocator import release_free_memory
from tandem.serving.http.libretranslate_api import ApiError
from tandem.serving.served_models import ServedModel
from tandem.serving.server_metrics import ServerMetrics
from tandem.translation.engine import Hypothesis

# Sentence n of a request waits as if it had come this many seconds times n later, so that a short request passes a
# long one. A worker does more in the time, so the long one loses nothing while it is alone.
SENTENCE_SECONDS = 0.05
# Waiting sentences among which a batch of like lengths is chosen, the longest waiting first.
LOOK_AHEAD = 1024
# Fewer sentences than this are put into the queue one by one, which is faster than a pass through a long one.
FEW = 64
# Sentences that may wait; what would be more is told to come back, unless nothing else waits. Two cores do not get
# through so many within the time that a request has.
MOST_WAITING = 100_000
# Seconds without a sentence after which the memory that batches have left free is handed back to the system.
QUIET_SECONDS = 1.0
# Share of a batch's time that a worker then waits for as many sentences again: clients that have just been answered
# are about to ask again, and batches of one are slow. After a batch of one sentence it does not wait.
PAUSE = 0.1


class _Waiting(NamedTuple):
    """A sentence in the queue; they are in order by what comes first here."""

    due: float
    number: int
    model: ServedModel
    ids: list[int]
    wanted: int
    future: asyncio.Future[list[Hypothesis]]


class SentenceBatches:
    """The queue of sentences and the threads that translate them."""

    def __init__(self, threads: int, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._condition = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._number = 0
        self._idle, self._closed = 0, False
        self._threads = [
            threading.Thread(target=self._work, name=f"translate-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, model: ServedModel, sources: Sequence[list[int]], count: int = 1, places: Iterator[int] | None = None
    ) -> list[asyncio.Future[list[Hypothesis]]]:
        """Put sentences of a request into the queue; cancelling a future takes its sentence out again.

        `places` counts the sentences of a request that submits several times.
        """
        loop, now, places = asyncio.get_running_loop(), time.monotonic(), places or itertools.count()
        with self._condition:
            if self._closed:
                raise RuntimeError("the server is stopping")
            if not self._has_room(len(sources)):
                raise ApiError(503, "too many sentences wait already; try again later", {"retry-after": "5"})
            begin = self._number
            self._number += len(sources)
            added = [
                _Waiting(now + place * SENTENCE_SECONDS, number, model, ids, count, loop.create_future())
                for number, (ids, place) in enumerate(zip(sources, places, strict=False), begin)
            ]
            if len(added) < FEW:
                for waiting in added:
                    bisect.insort(self._waiting, waiting)
            else:
                self._waiting += added
                self._waiting.sort()  # two parts in order, which takes one pass
            self._metrics.queue.set(len(self._waiting))
            self._condition.notify(len(added))
        return [waiting.future for waiting in added]

    def close(self) -> None:
        """End the threads; what they are at is finished, what waits is not begun."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        size, seconds = 1, 0.0
        while batch := self._take(size, PAUSE * seconds if size > 1 else 0.0):
            begun = time.monotonic()
            self._translate(batch)
            size, seconds = len(batch), time.monotonic() - begun

    def _take(self, wanted: int, pause: float) -> list[_Waiting]:
        """The next batch, once there are as many sentences as wanted or the pause is over; none at the end."""
        with self._condition:
            self._idle += 1
            if pause:
                self._condition.wait_for(lambda: self._closed or len(self._waiting) >= wanted, pause)
            while not self._closed:
                if batch := self._next_batch():
                    self._idle -= 1
                    self._metrics.queue.set(len(self._waiting))
                    return batch
                self._wait_for_work()
            self._idle -= 1
            return []

    def _wait_for_work(self) -> None:
        """Wait for a sentence; the last worker to become idle hands memory back once it is quiet."""
        if self._idle == len(self._threads) and not self._condition.wait(QUIET_SECONDS):
            release_free_memory()
        self._condition.wait_for(lambda: self._closed or self._waiting)

    def _next_batch(self) -> list[_Waiting]:
        """The sentence that has waited longest, and those of like length; fewer if other workers have nothing to do.

        All need the same search: how many translations one client asks for changes nobody else's.
        """
        head: list[_Waiting] = []
        while self._waiting and not head:
            head = self._without_gone(LOOK_AHEAD)
        if not head:
            return []
        first = head[0]
        engine, beam = first.model.engine, first.model.engine.beam_for(first.wanted)
        alike = [
            waiting for waiting in head if waiting.model is first.model and engine.beam_for(waiting.wanted) == beam
        ]
        alike.sort(key=lambda waiting: abs(len(waiting.ids) - len(first.ids)))
        share = -(-len(self._waiting) // self._idle)
        longest = 0
        batch: list[_Waiting] = []
        for waiting in alike[:share]:
            longest = max(longest, len(waiting.ids))
            if batch and longest * (len(batch) + 1) > engine.batch_tokens:
                break
            batch.append(waiting)
        taken = {waiting.number for waiting in batch}
        self._waiting[: len(head)] = [waiting for waiting in head if waiting.number not in taken]
        return batch

    def _without_gone(self, most: int) -> list[_Waiting]:
        """The first sentences of the queue, those taken out that nobody waits for."""
        head = self._waiting[:most]
        alive = [waiting for waiting in head if not waiting.future.cancelled()]
        if len(alive) < len(head):
            self._waiting[: len(head)] = alive
            self._metrics.dropped.inc(len(head) - len(alive))
            self._metrics.queue.set(len(self._waiting))
        return alive

    def _has_room(self, more: int) -> bool:
        """Whether so many more may wait: any number if nothing else does."""
        if len(self._waiting) + more > MOST_WAITING:
            self._without_gone(len(self._waiting))
        return not self._waiting or len(self._waiting) + more <= MOST_WAITING

    def _translate(self, batch: list[_Waiting]) -> None:
        self._metrics.batches.observe(len(batch))
        engine, most = batch[0].model.engine, max(waiting.wanted for waiting in batch)
        try:
            found: list[list[Hypothesis]] | Exception = engine.hypotheses([waiting.ids for waiting in batch], most)
            self._metrics.sentences.inc(len(batch))
        except Exception as error:
            found = error
        # The loop is closed if the server has stopped meanwhile, which it does once nobody waits for an answer.
        with contextlib.suppress(RuntimeError):
            batch[0].future.get_loop().call_soon_threadsafe(_deliver, batch, found)


def _deliver(batch: list[_Waiting], found: list[list[Hypothesis]] | Exception) -> None:
    for place, waiting in enumerate(batch):
        if waiting.future.done():
            continue
        if isinstance(found, Exception):
            waiting.future.set_exception(found)
        else:
            waiting.future.set_result(found[place][: waiting.wanted])
