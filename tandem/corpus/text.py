"""What a text file is: UTF-8, a sentence a line, plain or gzipped."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from tandem.errors import TandemError

Pair = tuple[str, str]
Files = tuple[Path, Path]
"""Source and target text, line by line each other's translation."""

RawLine = bytes | None
"""A line without its end, as it is in the file; None stands for one too long to be a sentence."""

LONGEST_LINE = 1 << 20
"""Bytes of the longest line that is read. No sentence comes near it; a file without line ends would fill the memory."""

BOM = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
_OTHER_PACKINGS = {b"\xfd7zXZ": "an xz", b"BZh": "a bzip2", b"PK\x03\x04": "a zip", b"\x28\xb5\x2f\xfd": "a zstd"}
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16LE", b"\xfe\xff": "UTF-16BE"}


def read_line(file: BinaryIO) -> RawLine:
    """The next line without its end; only a newline ends a line, whatever Unicode says. EOFError if there is none."""
    line = file.readline(LONGEST_LINE + 2)  # the two bytes of a Windows line end
    if not line:
        raise EOFError
    content = line.removesuffix(b"\n").removesuffix(b"\r")
    if len(content) <= LONGEST_LINE:
        return content
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE)
    return None


def split_lines(content: bytes) -> list[RawLine]:
    """All lines of a piece of a text, as `read_line` would give them one by one."""
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
    for mark, packing in _OTHER_PACKINGS.items():
        if start.startswith(mark):
            raise TandemError(f"{path}: this is {packing} file; unpack it, or describe it in a YAML file for --from")
    for mark, encoding in _OTHER_ENCODINGS.items():
        if start.startswith(mark):
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
            f"convert the file, for example: iconv -f LATIN1 -t UTF-8 {path}"
        ) from None


def unreadable(path: Path, error: OSError) -> TandemError:
    """What to say of a file that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return TandemError(f"{path}: no such file; check the path")
    if isinstance(error, IsADirectoryError):
        return TandemError(f"{path}: this is a directory; give a text file")
    return TandemError(f"{path}: cannot be read ({error.strerror or error}); check the file and its permissions")
