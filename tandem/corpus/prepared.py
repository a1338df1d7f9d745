"""A prepared corpus on the disk, seen from the side that reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, ValidationError, field_validator

from tandem.config import CorpusConfig, Section
from tandem.corpus.shards import EncodedPairs
from tandem.corpus.text_files import option_of, split_name
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import CORPUS_FILE, CORPUS_REMEDY, TOKENIZER_FILE
from tandem.storage import read_json, sha256_of
from tandem.untrusted_folder import foreign_entry, foreign_name

if TYPE_CHECKING:
    from tandem.corpus.prepare.dropped_examples import DroppedExample

FORMAT = 2
TEXT_FILES = ("source.txt", "target.txt")


class Amount(Section):
    """How much text, or how much of it in the form that training reads."""

    lines: int
    bytes: int
    """Bytes of UTF-8, newlines included; or of the token ids on the disk."""
    mb: float

    @classmethod
    def of(cls, lines: int, size: int, **counts: int) -> Self:
        return cls(lines=lines, bytes=size, mb=size / 1e6, **counts)


class TextAmount(Amount):
    """How much text."""

    words: int
    """Words, divided by blanks."""


class EncodedAmount(Amount):
    """How much encoded text."""

    tokens: int
    """Pieces of the vocabulary, without BOS, EOS and padding."""


class InputFacts(Section):
    """A file that the corpus was made from, as it lay on the disk."""

    name: str
    """File name without its directory, so that the same files elsewhere give the same corpus; of a known corpus the
    archive and the member that the text came from."""
    bytes: int
    """Size of the file, packed if it was."""
    sha256: str
    """Checksum of the file, packed if it was."""
    lines: int


class SideFacts(Section):
    """One language of one split, stage by stage."""

    inputs: list[InputFacts]
    raw: TextAmount
    cleaned: TextAmount
    """Text kept: after cleaning for train, all lines for the others."""
    encoded: EncodedAmount


# A split's name is a folder of the corpus: that of a corpus from other people must not lead out of it.
SplitName = Annotated[str, AfterValidator(split_name)]


class SplitFacts(Section):
    """One split: train, test or a dev set."""

    dropped: dict[str, int]
    """Pairs dropped by each cleaning rule; only train is cleaned."""
    in_train: int
    """Pairs of test or a dev set that stand in the training text too: what they measure is partly memory."""
    source: SideFacts
    target: SideFacts


class VocabularyFacts(Section):
    """Size of the joint vocabulary."""

    requested: int
    """Pieces asked for, or chosen by the size of the training text."""
    actual: int
    """Pieces there are: fewer than requested if the training text could carry no more."""
    kept: int = 0
    """The first so many are another corpus' or run's, under the same numbers; 0 if all were learnt from this text."""


class FileFacts(Section):
    """A file of the prepared corpus."""

    bytes: int
    sha256: str


class CorpusFacts(Section):
    """What corpus.json says: where the corpus came from, what was done and what there is now."""

    format: int
    """Version of the layout of a prepared corpus."""
    tandem: str
    source_language: str
    target_language: str
    settings: CorpusConfig
    vocabulary: VocabularyFacts
    splits: dict[SplitName, SplitFacts]
    """Splits by name: train, dev, further dev sets by their names, test."""
    origin: str | None
    """The corpus of the catalog, or the file describing one, that the text came from; empty for text given as files."""
    files: dict[str, FileFacts]
    """All files save corpus.json, by their path inside the corpus."""

    @field_validator("splits")
    @classmethod
    def _has_train_and_dev(cls, splits: dict[str, SplitFacts]) -> dict[str, SplitFacts]:
        if missing := [name for name in ("train", "dev") if name not in splits]:
            raise ValueError(f"there is no {missing[0]}")
        return splits

    @property
    def dev_sets(self) -> list[str]:
        """Names of the dev sets: dev, which every corpus has, and further ones."""
        return [name for name in self.splits if name not in ("train", "test")]

    def digest(self) -> str:
        """One checksum for what a training run sees, the same wherever and by whichever version it was made."""
        seen = {
            "format": self.format,
            "languages": [self.source_language, self.target_language],
            "files": {path: file.sha256 for path, file in self.files.items()},
        }
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class PreparedCorpus:
    """An opened corpus; its files were there in full when it was opened."""

    directory: Path
    facts: CorpusFacts
    tokenizer: Tokenizer
    dropped_examples: Mapping[str, Sequence[DroppedExample]] = field(default_factory=dict)
    """Pairs that each cleaning rule dropped, if `prepare` was asked for examples; they are not stored."""

    @classmethod
    def open(cls, directory: Path) -> PreparedCorpus:
        """Open a corpus after comparing the size of every file with corpus.json."""
        if foreign := foreign_entry(directory):
            raise TandemError(f"{directory}: not read: {foreign}")
        facts = read_facts(directory)
        if foreign := foreign_name(facts.files):
            raise TandemError(f"{directory / CORPUS_FILE}: not read: {foreign}; {CORPUS_REMEDY}")
        for name, expected in facts.files.items():
            path = directory / name
            if not path.is_file():
                raise TandemError(f"{path}: a file of the corpus is missing; {CORPUS_REMEDY}")
            if (size := path.stat().st_size) != expected.bytes:
                raise TandemError(f"{path}: {size} bytes, but {CORPUS_FILE} says {expected.bytes}; {CORPUS_REMEDY}")
        tokenizer = Tokenizer.load(directory / TOKENIZER_FILE)
        if tokenizer.vocab_size != facts.vocabulary.actual:
            raise TandemError(
                f"{directory / TOKENIZER_FILE}: {tokenizer.vocab_size} pieces, but {CORPUS_FILE} says "
                f"{facts.vocabulary.actual}; {CORPUS_REMEDY}"
            )
        return cls(directory, facts, tokenizer)

    @property
    def digest(self) -> str:
        """Checksum by which two hosts know that they train on the same corpus."""
        return self.facts.digest()

    def verify(self) -> None:
        """Compare the checksum of every file with corpus.json, which reads the whole corpus."""
        for name, expected in self.facts.files.items():
            if file_facts(self.directory / name) != expected:
                raise TandemError(f"{self.directory / name}: its contents differ from {CORPUS_FILE}; {CORPUS_REMEDY}")

    def pairs(self, split: str) -> EncodedPairs:
        """The encoded sentence pairs of 'train', 'test' or a dev set."""
        lines = self._facts_of(split).source.cleaned.lines
        pairs = EncodedPairs(self.directory / split)
        if len(pairs) != lines:
            raise TandemError(
                f"{self.directory / split}: {len(pairs)} pairs, but {CORPUS_FILE} says {lines}; {CORPUS_REMEDY}"
            )
        return pairs

    def chosen_split(self, split: str | None) -> str:
        """A dev set or test; where nothing was chosen test, if there is one."""
        if split is not None and split not in {*self.facts.dev_sets, "test"}:
            choices = ", ".join(self.facts.dev_sets)
            raise TandemError(f"--split {split}: choose {choices} or test")
        return split or ("test" if "test" in self.facts.splits else "dev")

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """The untouched source lines and references of 'test' or a dev set, in their order."""
        self._facts_of(split)
        if split == "train":
            raise TandemError(f"{self.directory}: the text of train is not kept; ask for test or a dev set")
        source, target = (_read_lines(self.directory / split / name) for name in TEXT_FILES)
        return source, target

    def _facts_of(self, split: str) -> SplitFacts:
        if split not in self.facts.splits:
            raise TandemError(
                f"{self.directory}: the corpus has no {split} split, only {', '.join(self.facts.splits)}; "
                f"prepare it again with {option_of(split)} and --overwrite"
            )
        return self.facts.splits[split]


def read_facts(directory: Path) -> CorpusFacts:
    """What corpus.json says, without a look at the other files."""
    path = directory / CORPUS_FILE
    try:
        content = read_json(path)
        if content.get("format") != FORMAT:
            raise TandemError(
                f"{path}: format {content.get('format')}, but this version of Tandem reads format {FORMAT}; "
                "make the corpus again with `tandem prepare --overwrite`"
            )
        return CorpusFacts.model_validate_json(json.dumps(content))
    except (FileNotFoundError, NotADirectoryError):
        fault = f"no such directory; make one with `tandem prepare --out {directory}`"
        if directory.exists():  # where `tandem prepare` would refuse to write
            fault = f"not a prepared corpus (no {CORPUS_FILE}); name one, or make one elsewhere with `tandem prepare`"
        raise TandemError(f"{directory}: {fault}") from None
    except OSError as error:
        raise TandemError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TandemError(f"{path}: damaged ({where}: {first['msg']}); {CORPUS_REMEDY}") from None
    except ValueError as error:
        raise TandemError(f"{path}: damaged ({error}); {CORPUS_REMEDY}") from None


def file_facts(path: Path) -> FileFacts:
    return FileFacts(bytes=path.stat().st_size, sha256=sha256_of(path))


def _read_lines(path: Path) -> list[str]:
    # Not splitlines(): only a newline ends a line, and every line has one.
    return path.read_bytes().decode("utf-8").split("\n")[:-1]


def summary_lines(corpus: PreparedCorpus) -> Iterator[str]:
    """A corpus for a person: lines, MB and tokens of each split and language, stage by stage, and what was dropped."""
    facts = corpus.facts
    origin = f", from {facts.origin}" if facts.origin else ""
    yield f"{corpus.directory}: {facts.source_language} to {facts.target_language}{origin}"
    yield from _table(corpus)
    dropped = [f"{count:,} {rule.replace('_', ' ')}" for rule, count in facts.splits["train"].dropped.items() if count]
    if dropped:
        yield f"dropped from train: {', '.join(dropped)}"
    for name, split in facts.splits.items():
        if split.in_train:
            yield f"{name}: {split.in_train:,} of {split.source.cleaned.lines:,} pairs also stand in train"
    vocabulary = facts.vocabulary
    more = f" (the text has no more to give: {vocabulary.requested:,} were asked for)"
    kept = f", {vocabulary.kept:,} of them taken over" if vocabulary.kept else ""
    more = more if vocabulary.actual < vocabulary.requested else ""
    yield f"vocabulary: {vocabulary.actual:,} pieces{kept}{more}"


def _table(corpus: PreparedCorpus) -> Iterator[str]:
    facts = corpus.facts
    rows = [["", "", "raw", "", "cleaned", "", "encoded"], ["", "lines", "MB", "lines", "MB", "tokens", "MB"]]
    longest = max(map(len, facts.splits))
    for name, split in facts.splits.items():
        for language, side in ((facts.source_language, split.source), (facts.target_language, split.target)):
            cells = [f"{name:{longest}} {language}"]
            cells += [f"{side.raw.lines:,}", f"{side.raw.mb:,.2f}", f"{side.cleaned.lines:,}"]
            cells += [f"{side.cleaned.mb:,.2f}", f"{side.encoded.tokens:,}", f"{side.encoded.mb:,.2f}"]
            rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        figures = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"  {row[0]:{widths[0]}}  {'  '.join(figures)}"
