"""Long texts do not hold up the event loop, and what has failed is not worked on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tandem.serving.request_batches import SentenceBatches
from tandem.serving.served_models import ServedModel
from tandem.serving.server_metrics import ServerMetrics
from tandem.serving.text_translation import LONG_TEXT, TextTranslation
from tandem.serving.translation_service import all_or_none
from tandem.translation.segments import Segment
from tests.serving.running_loop import run_async

pytestmark = pytest.mark.slow


def test_a_long_text_is_prepared_by_another_thread(model: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    split, encode = model.split, model.encode
    threads: list[threading.Thread] = []

    def noted_split(text: str) -> list[Segment]:
        threads.append(threading.current_thread())
        return split(text)

    def noted_encode(sentences: Sequence[str]) -> list[list[int]]:
        threads.append(threading.current_thread())
        return encode(sentences)

    monkeypatch.setattr(model, "split", noted_split)
    monkeypatch.setattr(model, "encode", noted_encode)

    async def scenario() -> None:
        batches = SentenceBatches(1, ServerMetrics())
        translation = TextTranslation(model, batches)
        lines = "A dog\n" * (LONG_TEXT // 5)
        assert (await translation.translate(lines)).text.count("\n") == lines.count("\n")
        assert len(threads) == 2
        assert threading.current_thread() not in threads
        batches.close()

    run_async(scenario())


def test_texts_beside_one_that_fails_are_given_up() -> None:
    async def scenario() -> None:
        other = asyncio.get_running_loop().create_future()

        async def fails() -> None:
            raise ValueError("a text that fails")

        async def waits() -> None:
            await other

        with pytest.raises(ValueError, match="a text that fails"):
            await all_or_none([waits(), fails()])
        await asyncio.sleep(0)
        assert other.cancelled()
        assert await all_or_none([asyncio.sleep(0, 1), asyncio.sleep(0, 2)]) == [1, 2]

    run_async(scenario())
