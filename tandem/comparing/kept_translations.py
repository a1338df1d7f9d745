"""Translations of test sets, kept beside the model that made them, so that nothing is translated twice.

A file is known by the digest of all that decides its content: weights, vocabulary, search, engine, versions of the
programs, and text. Other weights make other files; those of weights that are gone are removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tandem
from tandem.comparing.systems import System, run_weights
from tandem.comparing.test_text import TestText, text_digest
from tandem.layout import MODEL_FILE, STATE_FILE, RunPaths, kept_translations
from tandem.storage import read_json, write_json
from tandem.untrusted_folder import foreign_entry

FORMAT = 1
_NAME = re.compile(r"[0-9a-f]{32}\.json")


@dataclass(frozen=True)
class KeptTranslations:
    """Translations of one text by one model."""

    lines: list[str]
    engine: str
    """The engine that made them, as it was found to be at the time."""


@dataclass(frozen=True)
class TranslationKey:
    """What decides the translations of a text."""

    weights: str
    digest: str

    @classmethod
    def of(cls, system: System, text: TestText, engine: str) -> TranslationKey:
        assert system.search is not None, "translations in a file need no search"
        decides = {
            "weights": system.weights,
            # How many are searched for at once changes nothing.
            "search": system.search.model_dump(mode="json", exclude={"batch_sentences"}),
            "max_length": system.max_length,
            "engine": engine,
            "programs": [tandem.__version__, _version("torch"), _version("ctranslate2")],
            "text": text.source_digest,
        }
        return cls(system.weights, hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest())


class TranslationStore:
    """The translations that are kept beside one run or exported model."""

    def __init__(self, system: System) -> None:
        self._system, self._directory = system, kept_translations(system.directory)
        # A run may come from other people: what we read, write and remove must lie in it.
        self._leads_out = self._directory.is_symlink() or foreign_entry(self._directory) is not None

    def find(self, key: TranslationKey, count: int) -> KeptTranslations | None:
        """The translations of so many sentences, if they are here and undamaged."""
        if self._leads_out:
            return None
        try:
            held = read_json(self._file(key))
            lines, engine = held["translations"], held["engine"]
            if held["format"] != FORMAT or held["key"] != key.digest or len(lines) != count:
                return None
            return KeptTranslations(lines, engine) if held["lines_sha256"] == text_digest(lines) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def keep(self, key: TranslationKey, kept: KeptTranslations) -> bool:
        """Keep translations, and remove those of weights that are not here any more; whether they could be kept."""
        if self._leads_out:
            return False
        facts = {
            "format": FORMAT,
            "key": key.digest,
            "weights": key.weights,
            "engine": kept.engine,
            "lines_sha256": text_digest(kept.lines),
            "translations": kept.lines,
        }
        try:
            self._directory.mkdir(exist_ok=True)
            self._remove_others({key.weights, *self._weights_here()})
            write_json(self._file(key), facts)
        except OSError:
            return False
        return True

    def _file(self, key: TranslationKey) -> Path:
        return self._directory / f"{key.digest[:32]}.json"

    def _remove_others(self, weights: Collection[str]) -> None:
        for path in self._directory.iterdir():
            if _NAME.fullmatch(path.name) and _weights_of(path) not in weights:
                path.unlink(missing_ok=True)

    def _weights_here(self) -> set[str]:
        """The weights of all checkpoints that the run has now."""
        if self._system.run is None:
            return {self._system.weights}
        paths, found = RunPaths(self._system.directory), set()
        for state in (
            *paths.best.glob(f"*/{STATE_FILE}"),
            *paths.checkpoints.glob(f"*/{STATE_FILE}"),
            paths.averaged / STATE_FILE,
        ):
            with suppress(OSError, ValueError, KeyError, TypeError):
                found.add(run_weights(str(read_json(state)["files"][MODEL_FILE]["sha256"]), self._system.directory))
        return found


def _weights_of(path: Path) -> str | None:
    try:
        return str(read_json(path)["weights"])
    except (OSError, ValueError, KeyError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
