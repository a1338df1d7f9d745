"""The test set on which models are compared: a split of their corpora, or two files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.comparing.systems import System
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.training.run_directory import Run
from tandem.translation.line_streams import text_lines

GIVE_FILES = "give the test set with --test SOURCE REFERENCE"


@dataclass(frozen=True, kw_only=True)
class TestText:
    """Source sentences with their reference translations."""

    __test__ = False  # for pytest it is called like a test

    name: str
    sources: Sequence[str]
    references: Sequence[str]
    remarks: tuple[str, ...] = ()

    @property
    def source_digest(self) -> str:
        return text_digest(self.sources)


def text_digest(lines: Sequence[str]) -> str:
    """Digest of lines, in which no two texts are taken for each other."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", errors="surrogatepass") + b"\n")
    return digest.hexdigest()


def given_text(source: Path, reference: Path) -> TestText:
    """The test set in two files, line by line."""
    sources, references = list(text_lines(source)), list(text_lines(reference))
    if len(sources) != len(references):
        raise TandemError(
            f"{source} has {len(sources):,} lines, {reference} {len(references):,}; line n of one must be the "
            "translation of line n of the other"
        )
    if not sources:
        raise TandemError(f"{source}: no lines to translate; give a test set that is not empty")
    return TestText(name=f"{source.name}, {reference.name}", sources=sources, references=references)


def common_text(systems: Sequence[System], split: str | None) -> TestText:
    """The split that all runs' corpora have in common; where a corpus is gone, the others' will do."""
    runs = [(system, system.run) for system in systems if system.run is not None]
    if not runs:
        raise TandemError(f"none of these is a run, whose corpus would have a test set; {GIVE_FILES}")
    corpora = [(system, corpus) for system, run in runs if (corpus := _corpus_of(run)) is not None]
    if not corpora:
        gone = runs[0][1].corpus_directory
        raise TandemError(f"{gone}: not the corpus that {runs[0][0].name} was trained on any more; {GIVE_FILES}")
    first, corpus = corpora[0]
    chosen = corpus.chosen_split(split)
    sources, references = corpus.text(chosen)
    for other, its_corpus in corpora[1:]:
        if its_corpus.digest != corpus.digest and its_corpus.text(chosen) != (sources, references):
            raise TandemError(
                f"{first.name} and {other.name}: the {chosen} sets of their corpora are different texts; {GIVE_FILES}"
            )
    return TestText(
        name=f"{chosen} set of {corpus.directory.name}",
        sources=sources,
        references=references,
        remarks=_seen_in_training(corpora, chosen),
    )


def _corpus_of(run: Run) -> PreparedCorpus | None:
    """The corpus of a run, if it is still where it was, whole and unchanged."""
    try:
        return run.corpus()
    except TandemError:
        return None


def _seen_in_training(corpora: Sequence[tuple[System, PreparedCorpus]], split: str) -> tuple[str, ...]:
    """A remark for each corpus whose training text holds some of the test set."""
    remarks = {}
    for system, corpus in corpora:
        facts = corpus.facts.splits[split]
        if facts.in_train and corpus.digest not in remarks:
            remarks[corpus.digest] = (
                f"{facts.in_train:,} of the {facts.source.cleaned.lines:,} pairs also stand in the training text of "
                f"{system.name} ({corpus.directory.name}): in part, its memory is measured."
            )
    return tuple(remarks.values())
