"""The translations of a test set by each system: read from its file, kept from before, or made now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tandem.comparing.kept_translations import KeptTranslations, TranslationKey, TranslationStore
from tandem.comparing.systems import System
from tandem.comparing.test_text import TestText
from tandem.corpus.progress import ProgressCallback
from tandem.errors import TandemError
from tandem.translation.line_streams import text_lines
from tandem.translation.translator import EngineChoice, Translator


@dataclass(frozen=True)
class Translated:
    """A test set as one system translates it."""

    system: System
    lines: Sequence[str]
    engine: str | None
    """What computed; None for a file of translations."""
    made_now: bool = False
    not_kept: bool = False
    """Whether the disk did not take them, so that the next comparison must translate again."""


def translate_systems(
    systems: Sequence[System], text: TestText, engine: EngineChoice, progress: ProgressCallback
) -> list[Translated]:
    """The translations by all systems; files are read first, so that one that does not fit costs no translating."""
    files = {id(system): _read(system, text) for system in systems if system.kind == "translations"}
    return [files.get(id(system)) or _translated(system, text, engine, progress) for system in systems]


def _read(system: System, text: TestText) -> Translated:
    lines = list(text_lines(system.directory))
    if len(lines) != len(text.sources):
        raise TandemError(
            f"{system.directory}: {len(lines):,} lines for {len(text.sources):,} sentences of the {text.name}; give a "
            "translation a line"
        )
    return Translated(system, lines, None)


def _translated(system: System, text: TestText, engine: EngineChoice, progress: ProgressCallback) -> Translated:
    key, store = TranslationKey.of(system, text, engine), TranslationStore(system)
    if kept := store.find(key, len(text.sources)):
        return Translated(system, kept.lines, kept.engine)
    translator = Translator.load(
        system.directory,
        "best" if system.checkpoint is None else str(system.checkpoint),
        list(_search_settings(system)),
        engine=engine,
    )
    lines: list[str] = []
    for _, translation in translator.translate_stream(text.sources):
        lines.append(" ".join(translation.splitlines()))
        progress(f"translate {system.name}", len(lines), len(text.sources))
    saved = store.keep(key, KeptTranslations(lines, translator.engine.name))
    return Translated(system, lines, translator.engine.name, made_now=True, not_kept=not saved)


def _search_settings(system: System) -> Iterator[str]:
    assert system.search is not None
    for name, value in system.search.model_dump(mode="json").items():
        yield f"search.{name}={value}"
