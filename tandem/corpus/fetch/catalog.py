"""Corpora known by name, and the user's own described in the same words: where each is, what is in it, who may use it.

The sentence under each field is what a user reads when the field of his file is wrong.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, model_validator

from tandem.config import Section
from tandem.corpus.text_files import dev_set_name
from tandem.errors import TandemError
from tandem.validation import Fault, Location, dotted, faults_in, raise_faults
from tandem.yaml_files import Tree, read_yaml

CATALOG = Path(__file__).parent / "catalog.yaml"

_WIDTH = 80  # columns, which every terminal has
_INDENT = "  "
_PROOFS = {"files": "checked by sha256", "texts": "the unpacked text is checked by sha256"}

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# A name becomes a file's name in the cache, so it may lead nowhere else.
FileName = Annotated[str, Field(pattern=r"^[\w+-][\w.+-]*$")]
# A language becomes the ending of a file's name.
Language = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]


def _own_stem(name: str) -> str:
    """The name of a dev set, if no training text is unpacked under it; a ValueError if one is."""
    if re.fullmatch(r"train-\d+", name):
        raise ValueError(f"{name} is what a training text is unpacked as; give it another name")
    return name


# A dev set's name becomes a folder of the corpus, and before that the beginning of a file's name.
DevSetName = Annotated[str, AfterValidator(dev_set_name), AfterValidator(_own_stem)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+/\S+$")]


class CorpusFile(Section):
    """An archive or text, on the network or on this disk."""

    urls: list[Url] = Field(default_factory=list)
    """Where the file is, each https:// or http://, the best first, then mirrors of the same bytes; or give `path`."""
    path: str | None = Field(default=None, min_length=1)
    """Where the file is on this disk, seen from the directory of the YAML file; or give `urls`."""
    bytes: int | None = Field(default=None, ge=1)
    """Its size in bytes, if that is known."""
    sha256: Sha256 | None = None
    """Its checksum, 64 hexadecimal digits in lower case, as `sha256sum` prints it, if that is known."""

    @model_validator(mode="after")
    def _one_place(self) -> CorpusFile:
        if bool(self.urls) == (self.path is not None):
            raise ValueError("needs either urls or a path; give one of the two")
        return self


class TextSource(Section):
    """The text of one language."""

    file: str
    """The name under `files` of the file that holds the text."""
    member: str = ""
    """The text's name inside the archive; empty if the file is the text itself, plain or gzipped."""
    bytes: int | None = Field(default=None, ge=1)
    """Size of the unpacked text in bytes, if that is known."""
    sha256: Sha256 | None = None
    """Checksum of the unpacked text, 64 hexadecimal digits in lower case, if that is known."""


class PairSource(Section):
    """Two texts, line by line each other's translation."""

    source: TextSource
    """The text to translate from: `file`, and `member` if that is an archive."""
    target: TextSource
    """The text to translate into: `file`, and `member` if that is an archive."""

    @property
    def sides(self) -> tuple[TextSource, TextSource]:
        return self.source, self.target


class SplitSource(Section):
    """Sentences to measure with: two texts, a test set that sacreBLEU knows, or pairs kept out of the training text."""

    source: TextSource | None = None
    """The text to translate from; needs `target` beside it."""
    target: TextSource | None = None
    """The text to translate into; needs `source` beside it."""
    sacrebleu: str | None = None
    """Name of a test set that sacreBLEU knows, for example wmt13; `sacrebleu --list` shows all."""
    held_out: int | None = Field(default=None, ge=1)
    """How many pairs to take out of the training text."""

    @model_validator(mode="after")
    def _one_way(self) -> SplitSource:
        texts = [text for text in (self.source, self.target) if text is not None]
        ways = (len(texts) == 2) + (self.sacrebleu is not None) + (self.held_out is not None)
        if ways != 1 or len(texts) == 1:
            raise ValueError("needs one of: source and target, sacrebleu, held_out")
        return self

    @property
    def texts(self) -> PairSource | None:
        """The two texts, if that is what it is."""
        return PairSource(source=self.source, target=self.target) if self.source and self.target else None


class CatalogEntry(Section):
    """A corpus: its languages, its files, and which of their texts train, steer and test."""

    title: str = ""
    """What it is, in a line."""
    source: Language
    """Language to translate from, as a file name ends in it, for example en."""
    target: Language
    """Language to translate into, for example de."""
    pairs: int | None = Field(default=None, ge=1)
    """About how many training pairs it has."""
    licence: str = "not stated"
    """Who may use it, and for what."""
    homepage: str | None = None
    """Where to read about it."""
    files: dict[FileName, CorpusFile] = Field(min_length=1)
    """The files by name, each with `urls` or `path`; a name is letters, digits and . _ + - and begins with no dot."""
    train: list[PairSource] = Field(min_length=1)
    """The training text: a list of pairs, each with `source` and `target`."""
    dev: SplitSource
    """What a run measures itself with: source and target, or sacrebleu, or held_out."""
    dev_sets: dict[DevSetName, SplitSource] = Field(default_factory=dict)
    """Further texts that a run measures itself with, by name, each like `dev`."""
    test: SplitSource | None = None
    """What the finished model is measured with: source and target, or sacrebleu, or held_out."""

    @property
    def held_apart(self) -> dict[str, SplitSource]:
        """All that is not trained on, by name."""
        return {"dev": self.dev, **self.dev_sets} | ({"test": self.test} if self.test else {})

    @model_validator(mode="after")
    def _two_languages(self) -> CatalogEntry:
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source}; give each language its own name")
        return self

    @property
    def texts(self) -> list[TextSource]:
        """All texts that come out of the files."""
        splits = [split.texts for split in self.held_apart.values()]
        return [text for pair in (*self.train, *splits) if pair for text in pair.sides]

    @property
    def download_bytes(self) -> int | None:
        """Size of all files to fetch; None if one of them is not known."""
        return _total(file.bytes for file in self.files.values() if file.urls)

    @property
    def text_bytes(self) -> int | None:
        """Size of all texts that the catalog names; None if one of them is not known."""
        return _total(text.bytes for text in self.texts)

    @property
    def checked(self) -> str | None:
        """What proves that the text is the right one: the sha256 of the files, of the texts, or nothing."""
        if all(self.files[text.file].sha256 for text in self.texts):
            return "files"
        return "texts" if all(text.sha256 or self.files[text.file].sha256 for text in self.texts) else None


def load_catalog() -> dict[str, CatalogEntry]:
    """The corpora that come with Tandem."""
    return {name: _validated(tree, f"{CATALOG.name}: {name}") for name, tree in read_yaml(CATALOG).items()}


def find_corpus(name_or_path: str) -> tuple[str, CatalogEntry]:
    """A corpus of the catalog, or the one that a user's YAML file describes; a name for it, and what it is."""
    catalog = load_catalog()
    if name_or_path in catalog:
        return name_or_path, catalog[name_or_path]
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(catalog)
        raise TandemError(f"{name_or_path}: neither a corpus that Tandem knows ({known}) nor a YAML file; check it")
    entry = _validated(read_yaml(path), name_or_path)
    return path.stem, _with_paths_from(path.resolve().parent, entry)


def catalog_lines(entries: Mapping[str, CatalogEntry]) -> list[str]:
    """The catalog for a person, three or four short lines a corpus."""
    lines = []
    for name, entry in entries.items():
        pairs = f", about {entry.pairs:,} pairs" if entry.pairs else ""
        lines.append(f"{name}: {entry.source} to {entry.target}{pairs}")
        proof = _PROOFS.get(entry.checked or "", "cannot be checked, no sha256 is known")
        licence = f"licence: {entry.licence}" + (f" ({entry.homepage})" if entry.homepage else "")
        for text in filter(None, (entry.title, f"download: {_size(entry)}; {proof}", licence)):
            lines += textwrap.wrap(
                text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT * 2, break_on_hyphens=False
            )
    return lines


def catalog_facts(entries: Mapping[str, CatalogEntry]) -> dict[str, dict[str, Any]]:
    """The catalog for a program: what `catalog_lines` says, and all files with their urls."""
    described = {"title", "source", "target", "pairs", "licence", "homepage"}
    return {
        name: entry.model_dump(include=described)
        | {
            "download_bytes": entry.download_bytes,
            "text_bytes": entry.text_bytes,
            "checked": entry.checked,
            "files": {key: file.model_dump(exclude_none=True) for key, file in entry.files.items()},
        }
        for name, entry in entries.items()
    }


def _total(sizes: Iterable[int | None]) -> int | None:
    """The sum; None if one of the sizes is not known."""
    known = list(sizes)
    return None if None in known else sum(filter(None, known))


def _size(entry: CatalogEntry) -> str:
    if entry.download_bytes is not None:
        return f"{entry.download_bytes / 1e6:,.0f} MB"
    unpacked = f", unpacked {entry.text_bytes / 1e6:,.1f} MB" if entry.text_bytes else ""
    return f"size not known{unpacked}"


def _with_paths_from(directory: Path, entry: CatalogEntry) -> CatalogEntry:
    """The entry with its paths, which count from the YAML file, made whole."""
    files = {
        name: file.model_copy(update={"path": str(directory / Path(file.path).expanduser())}) if file.path else file
        for name, file in entry.files.items()
    }
    return entry.model_copy(update={"files": files})


def _validated(tree: Tree, origin: str) -> CatalogEntry:
    """The typed entry, or one error that lists every fault."""
    # Looked for in the plain tree, so that they are told in the same breath as faults elsewhere.
    faults = list(_file_faults(tree))
    try:
        entry = CatalogEntry.model_validate(tree)
    except ValidationError as error:
        faults = [*faults_in(error, CatalogEntry), *faults]
    raise_faults(faults, "the corpus", origin)
    return entry


def _file_faults(tree: Tree) -> Iterator[Fault]:
    """Texts in files that the entry does not have, texts that serve twice, and files that no text is in."""
    files = tree.get("files", {})
    if not isinstance(files, dict):
        return
    used: dict[tuple[str, str], Location] = {}
    for location, text in _texts({key: tree.get(key) for key in ("train", "dev", "dev_sets", "test")}):
        name, member = text["file"], str(text.get("member", ""))
        if name not in files:
            there = f"there is {', '.join(files)}" if files else "describe it there, by its urls or path"
            yield Fault(dotted((*location, "file")), f"{name} is not under files; {there}")
        elif same := used.get((name, member)):
            yield Fault(dotted(location), f"the same text as {dotted(same)}; name another, each serves once")
        used.setdefault((name, member), location)
    for name in sorted(files.keys() - {name for name, _ in used}):
        yield Fault(f"files.{name}", "no text of train, dev, dev_sets or test is in it; use it there or remove it")


def _texts(node: Any, location: Location = ()) -> Iterator[tuple[Location, Tree]]:
    """Every part of a tree that names a file, with its place."""
    if isinstance(node, dict) and isinstance(node.get("file"), str):
        yield location, node
        return
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from _texts(child, (*location, key))
