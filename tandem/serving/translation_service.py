"""What the routes do: models found, languages detected, limits held, texts translated."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from tandem.serving.http.api_keys import ApiKeys
from tandem.serving.http.libretranslate_api import (
    AlignRequest,
    ApiError,
    ApiRequest,
    DetectRequest,
    StreamRequest,
    TranslateRequest,
    printable,
)
from tandem.serving.http.limits import RateLimit
from tandem.serving.http.translated_files import FORMATS
from tandem.serving.language_detection import DetectedLanguage, can_detect, detect_language
from tandem.serving.markup.markup_translation import translate_markup
from tandem.serving.request_batches import SentenceBatches
from tandem.serving.serve_settings import ServeSettings
from tandem.serving.served_models import ServedModel, ServedModels
from tandem.serving.server_metrics import ServerMetrics
from tandem.serving.text_translation import TextTranslation, TranslatedText
from tandem.serving.word_alignment import align, utf16_spans

AUTO = "auto"
T = TypeVar("T")


class TranslationService:
    """Answers the requests of one server."""

    def __init__(
        self,
        models: ServedModels,
        batches: SentenceBatches,
        keys: ApiKeys,
        settings: ServeSettings,
        metrics: ServerMetrics,
    ) -> None:
        self.models, self._batches, self.keys = models, batches, keys
        self.settings, self.metrics = settings, metrics
        self._rate = RateLimit(settings.requests_per_minute)

    def admit(self, request: ApiRequest, address: str) -> None:
        """Check the key of a request, and how many its client has made; wrong keys count for the address."""
        client = address
        if self.keys.required:
            # Before the key is looked at: whoever tries keys must not learn by the answer that one is right.
            self._check_rate(self._rate.look(address))
            if not request.api_key:
                self._rate.take(address)
                raise ApiError(400, "api_key: missing; this server wants one, ask whoever runs it")
            if not self.keys.accepts(request.api_key):
                self._rate.take(address)
                raise ApiError(403, "api_key: not one of this server's; ask whoever runs it")
            client = f"key {request.api_key}"
        self._check_rate(self._rate.take(client))

    def _check_rate(self, seconds: float) -> None:
        if seconds:
            message = f"more than {self.settings.requests_per_minute} requests a minute; slow down"
            raise ApiError(429, message, {"retry-after": str(int(seconds) + 1)})

    async def translate(self, request: TranslateRequest) -> dict[str, Any]:
        """The answer to POST /translate."""
        many = not isinstance(request.q, str)
        texts = [request.q] if isinstance(request.q, str) else request.q
        self._check_size(texts)
        detected = self._sources(texts, request.source, request.target)
        models = [self._model(each.language, request.target) for each in detected]
        places = itertools.count()
        found = await all_or_none(
            [
                self.translate_text(text, model, request.format, request.alternatives, places)
                for text, model in zip(texts, models, strict=True)
            ]
        )
        answer: dict[str, Any] = {"translatedText": _one_or_all([each.text for each in found], many)}
        if request.source == AUTO:
            answer["detectedLanguage"] = _one_or_all([each.as_dict() for each in detected], many)
        if request.alternatives:
            answer["alternatives"] = _one_or_all([each.alternatives for each in found], many)
        return answer

    async def translate_text(
        self, text: str, model: ServedModel, form: str, alternatives: int = 0, places: Iterator[int] | None = None
    ) -> TranslatedText:
        """A text or a piece of HTML; `places` counts the sentences of a request that has several."""
        translation = TextTranslation(model, self._batches, places)
        if form == "html":
            return await translate_markup(text, translation, alternatives)
        return await translation.translate(text, alternatives)

    def begin_stream(self, request: StreamRequest) -> AsyncIterator[bytes]:
        """The lines of the answer to POST /translate/stream; a request that is wrong is refused before the first."""
        self._check_size([request.q])
        [detected] = self._sources([request.q], request.source, request.target)
        return self._stream(request.q, self._model(detected.language, request.target))

    async def _stream(self, text: str, model: ServedModel) -> AsyncIterator[bytes]:
        deadline = asyncio.get_running_loop().time() + self.settings.time_out
        sentences = TextTranslation(model, self._batches).stream(text)
        number = 0
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    segment, translation = await anext(sentences)
                line = {"index": number, "source": segment.text, "translation": translation, "space": segment.space}
                yield _line(line)
                number += 1
        except StopAsyncIteration:
            return
        except ApiError as error:
            yield _line({"error": error.message})
        except TimeoutError:
            yield _line({"error": f"not done within {self.settings.time_out:g} seconds; send less at once"})

    async def align(self, request: AlignRequest) -> dict[str, Any]:
        """The answer to POST /align."""
        model = self._model(request.source, request.target)
        for name, text in (("q", request.q), ("translation", request.translation)):
            if len(text) > self.settings.char_limit or not model.translator.fits(text):
                raise ApiError(413, f"{name}: longer than the model can hold; align one sentence at a time")
        found = await asyncio.to_thread(align, model, request.q, request.translation)
        return {
            "source": utf16_spans(request.q, found.source),
            "target": utf16_spans(request.translation, found.target),
            "links": found.links(),
        }

    def detect(self, request: DetectRequest) -> list[dict[str, object]]:
        """The answer to POST /detect."""
        self._check_size([request.q])
        sources = self.models.sources()
        self._check_detection(sources)
        found = detect_language(request.q, sources)
        return [each.as_dict() for each in found if each.confidence >= 1 or each is found[0]]

    def model_for(self, text: str, source: str, target: str) -> ServedModel:
        """The model that translates a text."""
        self._check_size([text])
        [detected] = self._sources([text], source, target)
        return self._model(detected.language, target)

    def frontend_settings(self) -> dict[str, Any]:
        """What LibreTranslate's clients ask for to draw themselves."""
        source, target = self.models.pairs[0]
        names = {str(language["code"]): language["name"] for language in self.models.languages()}
        return {
            "apiKeys": self.keys.required,
            "charLimit": self.settings.char_limit,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": self.keys.required,
            "language": {
                "source": {"code": source, "name": names[source]},
                "target": {"code": target, "name": names[target]},
            },
            "suggestions": False,
            "supportedFilesFormat": list(FORMATS),
            "models": self.models.facts(),
        }

    def _check_size(self, texts: Sequence[str]) -> None:
        if len(texts) > self.settings.batch_limit:
            raise ApiError(413, f"q: has {len(texts)} texts, and {self.settings.batch_limit} are allowed; send fewer")
        characters = sum(map(len, texts))
        if characters > self.settings.char_limit:
            raise ApiError(
                413, f"q: has {characters} characters, and {self.settings.char_limit} are allowed; send less at once"
            )
        self.metrics.characters.inc(characters)

    def _sources(self, texts: Sequence[str], source: str, target: str) -> list[DetectedLanguage]:
        """The language of every text, given or detected."""
        targets = {pair[1] for pair in self.models.pairs}
        if target not in targets:
            raise ApiError(400, f"target: {printable(target)} is not supported; there is {', '.join(sorted(targets))}")
        if source != AUTO:
            return [DetectedLanguage(source, 100.0)] * len(texts)
        sources = self.models.sources(target)
        self._check_detection(sources)
        return [detect_language(text, sources)[0] for text in texts]

    def _check_detection(self, sources: Sequence[str]) -> None:
        if len(sources) > 1 and not can_detect():
            raise ApiError(400, f"languages cannot be told apart on this server; name one of {', '.join(sources)}")

    def _model(self, source: str, target: str) -> ServedModel:
        model = self.models.find(source, target)
        if model is None:
            pairs = ", ".join(f"{pair[0]} to {pair[1]}" for pair in self.models.pairs)
            raise ApiError(
                400, f"source: {printable(source)} to {printable(target)} is not supported; there is {pairs}"
            )
        return model


async def all_or_none(texts: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them return; where one fails, the others are given up."""
    tasks = [asyncio.ensure_future(text) for text in texts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _one_or_all(values: list[Any], many: bool) -> Any:
    return values if many else values[0]


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"
