"""What is not the same of the systems: corpora, vocabularies, origins, checkpoints and settings, in a row each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tandem.comparing.comparison import SettingRow
from tandem.comparing.seed_groups import settings_of
from tandem.comparing.systems import System
from tandem.corpus.prepared import read_facts
from tandem.errors import TandemError
from tandem.layout import TOKENIZER_FILE
from tandem.storage import sha256_of

_DIGITS = 8
"""Hexadecimal digits of a digest that are shown: enough to tell a few apart."""


def setting_rows(systems: Sequence[System]) -> tuple[SettingRow, ...]:
    """The rows in which systems that have the fact at all disagree."""
    facts = [dict(_facts(system)) for system in systems]
    # In the order in which the first that has it gives it.
    keys = dict.fromkeys(key for known in facts for key in known)
    rows = [SettingRow(key=key, values=tuple(known.get(key) for known in facts)) for key in keys]
    return tuple(row for row in rows if len({value for value in row.values if value is not None}) > 1)


def _facts(system: System) -> Iterator[tuple[str, str]]:
    run = system.run
    if run is not None:
        yield "corpus", f"{run.corpus_directory.name} ({run.corpus_digest[:_DIGITS]})"
        yield from _corpus_facts(system)
        yield "vocabulary", f"{run.tokenizer().vocab_size:,} pieces ({_vocabulary_digest(system)})"
        yield "began with", "weights of its own" if run.origin is None else run.origin.name
    if system.choice:
        yield "checkpoint", system.choice
    if system.step is not None:
        yield "step of the checkpoint", f"{system.step:,}"
    if system.quantization is not None:
        yield "weights", system.quantization
    if run is not None:
        yield from ((key, _words(value)) for key, value in settings_of(run.config).items())
    elif system.search is not None:
        yield from ((f"search.{key}", _words(value)) for key, value in system.search.model_dump(mode="json").items())


def _corpus_facts(system: System) -> Iterator[tuple[str, str]]:
    """The amount of training text, if the corpus is still there."""
    assert system.run is not None
    try:
        facts = read_facts(system.run.corpus_directory)
    except TandemError:
        return
    if facts.digest() == system.run.corpus_digest:
        yield "training text", f"{facts.splits['train'].source.cleaned.lines:,} sentence pairs"


def _vocabulary_digest(system: System) -> str:
    return sha256_of(system.directory / TOKENIZER_FILE)[:_DIGITS]


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
