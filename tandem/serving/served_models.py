"""The models of a server, one for each pair of languages, and their exchange for newer ones while it runs."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tandem.errors import TandemError
from tandem.layout import EXPORT_FILE, STATE_FILE, RunPaths, checkpoint_directories
from tandem.serving.server_metrics import ServerMetrics
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.exported_folder import is_export, read_export
from tandem.translation.language_names import language_name
from tandem.translation.segments import Segment, split_sentences
from tandem.translation.translator import Translator, no_model

_SPACE = re.compile(r"\s")

log = logging.getLogger(__name__)

Pair = tuple[str, str]
# What is seen of a model's files: names, and when they were written. It changes with every new model.
Fingerprint = tuple[tuple[str, int, int], ...]


class ServedModel:
    """A model in memory; a newer one of the same languages is another object."""

    def __init__(self, translator: Translator, step: int) -> None:
        assert isinstance(translator.engine, CTranslate2Engine), "asked for when it was loaded"
        self.translator, self.engine, self.tokenizer = translator, translator.engine, translator.tokenizer
        self.step = step
        self.pair: Pair = (translator.source_language, translator.target_language)
        self.pieces = self.tokenizer.pieces()

    @classmethod
    def load(cls, path: Path, threads: int, overrides: Sequence[str] = ()) -> ServedModel:
        """Load a run's best checkpoint or an exported folder, and have it translate a word."""
        if is_export(path):
            step, checkpoint = read_export(path).step, "best"
        elif RunPaths(path).run_file.is_file():
            from tandem.training.checkpoints.restore import choose_checkpoint

            chosen = choose_checkpoint(Run.open(path), "best")
            step, checkpoint = chosen.step, str(chosen.directory)
        else:
            raise no_model(path)
        model = cls(Translator.load(path, checkpoint, overrides, engine="ctranslate2", threads=threads), step)
        try:
            model.translator.translate(["1"])
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            raise TandemError(f"{path}: the model cannot translate ({error}); export it again") from error
        return model

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The pieces of each sentence; white space of any kind is a space, which models know."""
        return self.tokenizer.encode([_SPACE.sub(" ", sentence) for sentence in sentences], threads=1)

    def split(self, text: str) -> list[Segment]:
        """The sentences of a text, none longer than the model knows, with the white space between them."""
        sentences = split_sentences(text, self.pair[0])
        return [part for segment in sentences for part in self.translator.fitting(segment)]


class _Source:
    """Where a model comes from, and the one that was loaded last."""

    def __init__(self, path: Path, model: ServedModel, seen: Fingerprint) -> None:
        self.path, self.model, self.seen = path, model, seen


class ServedModels:
    """All models of the server."""

    def __init__(
        self, paths: Sequence[Path], threads: int, metrics: ServerMetrics, overrides: Sequence[str] = ()
    ) -> None:
        self._threads, self._metrics, self._overrides = threads, metrics, overrides
        self._sources: dict[Pair, _Source] = {}
        for path in paths:
            seen = fingerprint(path)
            source = _Source(path, ServedModel.load(path, threads, overrides), seen)
            pair = source.model.pair
            if pair in self._sources:
                raise TandemError(
                    f"{path}: translates {pair[0]} to {pair[1]}, as {self._sources[pair].path} does; leave one out"
                )
            self._sources[pair] = source
            self._tell_step(source.model)

    @property
    def pairs(self) -> list[Pair]:
        return list(self._sources)

    def paths(self) -> dict[Pair, Path]:
        """Where each model comes from."""
        return {pair: source.path for pair, source in self._sources.items()}

    def sources(self, target: str | None = None) -> list[str]:
        """Languages that are translated from, into a target or into any."""
        return list(dict.fromkeys(pair[0] for pair in self._sources if target in (None, pair[1])))

    def find(self, source: str, target: str) -> ServedModel | None:
        """The newest model for two languages."""
        found = self._sources.get((source, target))
        return found.model if found else None

    def languages(self) -> list[dict[str, object]]:
        """Every language with its name and what it is translated into."""
        codes = dict.fromkeys([pair[0] for pair in self._sources] + [pair[1] for pair in self._sources])
        return [
            {
                "code": code,
                "name": language_name(code),
                "targets": [pair[1] for pair in self._sources if pair[0] == code],
            }
            for code in codes
        ]

    def facts(self) -> list[dict[str, object]]:
        """Every model's languages, the name of its folder and its step, for people to see."""
        return [
            {"source": pair[0], "target": pair[1], "name": each.path.resolve().name, "step": each.model.step}
            for pair, each in self._sources.items()
        ]

    def reload(self, *, always: bool = False) -> None:
        """Load what has changed; a model that is broken or of other languages is refused, and the old one stays."""
        for pair, source in self._sources.items():
            seen = fingerprint(source.path)
            if seen == source.seen and not always:
                continue
            source.seen = seen
            try:
                model = ServedModel.load(source.path, self._threads, self._overrides)
                if model.pair != pair:
                    raise TandemError(f"{source.path}: now translates {model.pair[0]} to {model.pair[1]}")
            except (TandemError, OSError) as error:
                self._metrics.reloads.labels("refused").inc()
                log.error("%s; still translating %s to %s with step %d", error, *pair, source.model.step)
                continue
            source.model = model
            self._tell_step(model)
            self._metrics.reloads.labels("taken").inc()
            log.info("translating %s to %s with step %d of %s", *pair, model.step, source.path)

    def _tell_step(self, model: ServedModel) -> None:
        self._metrics.step.labels(*model.pair).set(model.step)


class ModelWatch:
    """A thread that calls a function now and then, or when it is asked to, until it is closed."""

    def __init__(self, seconds: float, look: Callable[[bool], None]) -> None:
        self._seconds, self._look = seconds, look
        self._wake = threading.Event()
        self._asked = self._closed = False
        self._thread = threading.Thread(target=self._watch, name="watch-models", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Look at once, and load even what looks unchanged."""
        self._asked = True
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed:
            self._wake.wait(self._seconds)
            self._wake.clear()
            asked, self._asked = self._asked, False
            if not self._closed:
                try:
                    self._look(asked)
                except Exception:
                    log.exception("looking for newer models failed; the old ones stay")


def fingerprint(path: Path) -> Fingerprint:
    """What is seen of a model's files, without reading them."""
    run = RunPaths(path)
    best = checkpoint_directories(run.best) or checkpoint_directories(run.checkpoints)
    files = [path / EXPORT_FILE] if is_export(path) else [directory / STATE_FILE for directory in best.values()]
    found = []
    for file in files:
        try:
            facts = file.stat()
        except FileNotFoundError:  # replaced while we look: the next look sees the new one
            continue
        found.append((str(file), facts.st_mtime_ns, facts.st_size))
    return tuple(found)
