"""What a text file is: UTF-8, a sentence a line, plain or gzipped."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tandem.errors import TandemError

SentencePair = tuple[str, str]
NAMED_SPLITS = ("train", "dev", "test")
"""Splits with an option of their own; all others are further dev sets."""
FilePair = tuple[Path, Path]
"""Source and target text, line by line each other's translation."""
PathPair = tuple[str | Path, str | Path]

# What a dev set's name may be: it becomes a folder of the corpus, and stands before a slash in `checkpoint.best_by`.
_DEV_SET = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class CorpusTexts:
    """The text files that a corpus is made from."""

    train: Sequence[PathPair]
    dev: PathPair
    test: PathPair | None = None
    languages: tuple[str, str] | None = None
    """Source and target language; None takes them from the endings of the file names."""
    origin: str | None = None
    """The corpus of the catalog, or the file describing one, that the texts came from."""
    origins: Mapping[Path, str] = field(default_factory=dict)
    """Where a file came from, if that is more than its name."""
    dev_sets: Mapping[str, PathPair] = field(default_factory=dict)
    """Further texts to evaluate on during training, by name."""

    def __post_init__(self) -> None:
        for name in self.dev_sets:
            check_dev_set(name)

    @property
    def splits(self) -> dict[str, Sequence[FilePair]]:
        """The pairs of files of train, of all dev sets and, if there is one, of test."""
        given = {"train": self.train, "dev": [self.dev], **{name: [pair] for name, pair in self.dev_sets.items()}}
        given |= {"test": [self.test]} if self.test else {}
        return {name: [(Path(source), Path(target)) for source, target in pairs] for name, pairs in given.items()}


def dev_set_name(name: str) -> str:
    """The name, if a further dev set can have it; a ValueError if not."""
    if name in NAMED_SPLITS or not _DEV_SET.fullmatch(name):
        taken = ", ".join(NAMED_SPLITS)
        raise ValueError(f"a name is small letters, digits, _ and -, as in news-2019, and none of {taken}")
    return name


def split_name(name: str) -> str:
    """The name, if a split can have it; a ValueError if not."""
    return name if name in NAMED_SPLITS else dev_set_name(name)


def check_dev_set(name: str) -> None:
    """Refuse a name that no further dev set can have."""
    try:
        dev_set_name(name)
    except ValueError as error:
        raise TandemError(f"--dev-set {name!r}: {error}; give it another") from None


def option_of(split: str) -> str:
    """The option of `tandem prepare` that gives a split."""
    return f"--{split}" if split in NAMED_SPLITS else f"--dev-set {split}"


RawLine = bytes | None
"""A line without its end, as it is in the file; None stands for one too long to be a sentence."""
RawPair = tuple[RawLine, RawLine]

LONGEST_LINE = 1 << 20
"""Bytes of the longest line that is read. No sentence comes near it; a file without line ends would fill the memory."""

BOM = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
_PACKINGS = {b"\xfd7zXZ": "an xz", b"BZh": "a bzip2", b"PK\x03\x04": "a zip", b"\x28\xb5\x2f\xfd": "a zstd"}
_ENCODINGS = {b"\xff\xfe": "UTF-16LE", b"\xfe\xff": "UTF-16BE"}


def read_lines(file: BinaryIO) -> Iterator[RawLine]:
    """The lines of an open file without their ends; only a newline ends a line, whatever Unicode says."""
    while line := file.readline(LONGEST_LINE + 2):  # the two bytes of a Windows line end
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        yield content if len(content) <= LONGEST_LINE else None
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)


def split_lines(content: bytes) -> list[RawLine]:
    """All lines of a piece of a text, as `read_lines` would give them one by one."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if b"\r" in content:
        lines = [line.removesuffix(b"\r") for line in lines]
    return [line if len(line) <= LONGEST_LINE else None for line in lines]


def count_words(sentence: str) -> int:
    """What len(sentence.split()) gives, several times as fast for nearly all lines."""
    # Printable text has no other space than the common one; where that stands alone inside the line, it is enough to
    # count it.
    if sentence.isprintable() and "  " not in sentence and sentence == sentence.strip():
        return sentence.count(" ") + 1 if sentence else 0
    return len(sentence.split())


def check_file(path: Path) -> None:
    """Refuse a path that cannot be read, before any long work begins."""
    try:
        # Not opened here: a pipe, as in `--train <(zcat ...)`, can be opened only once.
        if stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError
        if not os.access(path, os.R_OK):
            raise PermissionError("no permission")
    except OSError as error:
        raise unreadable(path, error) from None


def check_start(path: Path, start: bytes) -> None:
    """Refuse a file whose first bytes show that it is no UTF-8 text."""
    if start.startswith(GZIP_MAGIC):
        raise TandemError(f"{path}: this is a gzip file; rename it to {path.name}.gz")
    if packing := next((name for magic, name in _PACKINGS.items() if start.startswith(magic)), None):
        raise TandemError(f"{path}: this is {packing} file; unpack it, or describe it in a YAML file for --from")
    if encoding := next((name for mark, name in _ENCODINGS.items() if start.startswith(mark)), None):
        raise TandemError(f"{path}: not UTF-8 but {encoding}; convert it: iconv -f {encoding} -t UTF-8 {path}")


def decoded(line: RawLine, path: Path, number: int) -> str:
    """The text of a line that may not be left out; `number` counts from 1."""
    if line is None:
        raise TandemError(f"{path}:{number}: longer than {LONGEST_LINE} bytes, which is no sentence; check the file")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TandemError(
            f"{path}:{number}: not UTF-8 (byte {error.start + 1} of the line is 0x{line[error.start]:02x}); "
            "convert it, for example with iconv -f LATIN1 -t UTF-8"
        ) from None


def unreadable(path: Path, error: OSError) -> TandemError:
    """What to say of a file that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return TandemError(f"{path}: no such file; check the path")
    if isinstance(error, IsADirectoryError):
        return TandemError(f"{path}: this is a directory; give a text file")
    return TandemError(f"{path}: cannot be read ({error.strerror or error}); check the file and its permissions")
