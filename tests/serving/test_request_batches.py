"""The queue of sentences: batches across requests, of like lengths, in fair order, without those nobody waits for."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tandem.serving import request_batches
from tandem.serving.http.libretranslate_api import ApiError
from tandem.serving.request_batches import SentenceBatches
from tandem.serving.served_models import ServedModel
from tandem.serving.server_metrics import ServerMetrics
from tandem.translation.engine import Hypothesis
from tests.serving.running_loop import run_async


class HeldEngine:
    """An engine that notes its batches, and waits before the first until it is let go."""

    batch_tokens = 100

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def beam_for(self, count: int) -> int:
        return max(2, count)

    def hypotheses(self, sources: Sequence[Sequence[int]], count: int = 1) -> list[list[Hypothesis]]:
        self.batches.append([ids[0] for ids in sources])
        self.begun.set()
        self.go.wait()
        if any(ids[0] < 0 for ids in sources):
            raise ValueError("a batch that fails")
        return [[Hypothesis([ids[0] * 10 + place], -place) for place in range(count)] for ids in sources]


class HeldModel:
    def __init__(self) -> None:
        self.engine = HeldEngine()


def held() -> tuple[HeldEngine, ServedModel]:
    model = HeldModel()
    return model.engine, cast(Any, model)


async def begun(engine: HeldEngine) -> None:
    await asyncio.to_thread(engine.begun.wait)


def test_sentences_of_several_requests_share_a_batch() -> None:
    async def scenario() -> None:
        metrics = ServerMetrics()
        batches = SentenceBatches(1, metrics)
        engine, model = held()
        first = batches.submit(model, [[1]])
        await begun(engine)
        others = [batches.submit(model, [[number] * number], count=2) for number in (5, 3, 4)]
        engine.go.set()
        answers = await asyncio.gather(*first, *(future for futures in others for future in futures))
        assert [[each.ids for each in answer] for answer in answers[:2]] == [[[10]], [[50], [51]]]
        assert engine.batches == [[1], [5, 4, 3]]
        batches.close()

    run_async(scenario())


def test_what_one_client_wants_changes_nobody_elses_search() -> None:
    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        engine, model = held()
        waiting = batches.submit(model, [[1]])
        await begun(engine)
        for number, count in enumerate((1, 9, 2, 5, 9), 2):
            waiting += batches.submit(model, [[number]], count)
        engine.go.set()
        answers = await asyncio.gather(*waiting)
        assert engine.batches == [[1], [2, 4], [3, 6], [5]]
        assert [len(answer) for answer in answers] == [1, 1, 9, 2, 5, 9]
        batches.close()

    run_async(scenario())


def test_a_batch_has_like_lengths_and_no_more_pieces_than_the_engine_wants() -> None:
    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        engine, model = held()
        waiting = batches.submit(model, [[1]])
        await begun(engine)
        for length in (30, 2, 28, 29, 40, 3):
            waiting += batches.submit(model, [[length] * length])
        engine.go.set()
        await asyncio.gather(*waiting)
        assert engine.batches == [[1], [30, 29, 28], [2, 3], [40]]
        batches.close()

    run_async(scenario())


def test_a_short_request_passes_a_long_one() -> None:
    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        engine, model = held()
        waiting = batches.submit(model, [[1]])
        await begun(engine)
        waiting += batches.submit(model, [[number] * 60 for number in range(2, 50)])
        waiting += batches.submit(model, [[99] * 60])
        engine.go.set()
        await asyncio.gather(*waiting)
        assert engine.batches.index([99]) < 5
        batches.close()

    run_async(scenario())


def test_a_short_request_passes_one_that_submits_often() -> None:
    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        engine, model = held()
        waiting = batches.submit(model, [[1]])
        await begun(engine)
        places = itertools.count()
        for number in range(2, 50):
            waiting += batches.submit(model, [[number] * 60], places=places)
        waiting += batches.submit(model, [[99] * 60])
        engine.go.set()
        await asyncio.gather(*waiting)
        assert engine.batches.index([99]) < 5
        batches.close()

    run_async(scenario())


def test_more_sentences_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_batches, "MOST_WAITING", 5)

    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        engine, model = held()
        waiting = batches.submit(model, [[1]])
        await begun(engine)
        waiting += batches.submit(model, [[2]] * 9)  # nothing else waits
        with pytest.raises(ApiError, match="too many sentences wait already"):
            batches.submit(model, [[3]])
        for future in waiting[1:6]:
            future.cancel()
        waiting += batches.submit(model, [[4]])
        engine.go.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert engine.batches == [[1], [4, 2, 2, 2, 2]]
        batches.close()

    run_async(scenario())


def test_what_nobody_waits_for_is_never_translated() -> None:
    async def scenario() -> None:
        metrics = ServerMetrics()
        batches = SentenceBatches(1, metrics)
        engine, model = held()
        first = batches.submit(model, [[1]])
        await begun(engine)
        gone, stays = batches.submit(model, [[2], [3]])
        gone.cancel()
        engine.go.set()
        await asyncio.gather(*first, stays)
        assert engine.batches == [[1], [3]]
        assert b"tandem_dropped_sentences_total 1.0" in metrics.text()
        batches.close()

    run_async(scenario())


def test_a_failed_batch_fails_its_sentences_only() -> None:
    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        engine, model = held()
        engine.go.set()
        with pytest.raises(ValueError, match="a batch that fails"):
            await batches.submit(model, [[-1]])[0]
        assert [each.ids for each in await batches.submit(model, [[2]])[0]] == [[20]]
        batches.close()
        with pytest.raises(RuntimeError, match="stopping"):
            batches.submit(model, [[3]])

    run_async(scenario())


def test_idle_workers_share_what_there_is() -> None:
    async def scenario() -> None:
        batches = SentenceBatches(2, ServerMetrics())
        engine, model = held()
        with batches._condition:  # both workers wait, or one has not come so far
            while batches._idle < 2:
                batches._condition.wait(0.01)
        engine.go.set()
        await asyncio.gather(*batches.submit(model, [[number] for number in range(1, 7)]))
        assert len(engine.batches) >= 2
        assert sorted(number for batch in engine.batches for number in batch) == list(range(1, 7))
        batches.close()

    run_async(scenario())


def test_a_batch_outlives_the_loop_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    batches = SentenceBatches(1, ServerMetrics())
    engine, model = held()

    async def client_that_goes() -> None:
        [future] = batches.submit(model, [[1]])
        await begun(engine)
        future.cancel()

    run_async(client_that_goes())
    engine.go.set()
    batches.close()
    assert failures == []


def test_memory_is_handed_back_when_nothing_has_come_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(request_batches, "release_free_memory", released.set)
    monkeypatch.setattr(request_batches, "QUIET_SECONDS", 0.01)

    async def scenario() -> None:
        engine, model = held()
        batches = SentenceBatches(2, ServerMetrics())
        [future] = batches.submit(model, [[1]])
        await begun(engine)
        released.clear()  # what the workers did before there was work
        engine.go.set()
        await future
        assert await asyncio.to_thread(released.wait, 60)
        batches.close()

    run_async(scenario())
