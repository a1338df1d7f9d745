"""Lines of text from a file, a pipe or a person, translated in order and in constant memory."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tandem.corpus.progress import ProgressCallback
from tandem.corpus.text_files import BOM, check_file, check_start, decoded, read_lines, unreadable
from tandem.storage import explained_write_errors, whole_file
from tandem.translation.translator import LINES_AT_ONCE, Translator

STANDARD_INPUT = Path("standard input")
PACKED = ".gz"


def translate_lines(translator: Translator, path: Path | None, progress: ProgressCallback) -> Iterator[tuple[str, str]]:
    """Each line of a file, or of standard input, with its translation on one line."""
    with _opened(path) as lines:
        plain = path is not None and path.suffix != PACKED
        total, unit = (os.fstat(lines.fileno()).st_size, "B") if plain else (None, "lines")
        # A person waits for the answer to each line.
        at_once = 1 if path is None and sys.stdin.isatty() else LINES_AT_ONCE
        done = 0
        for source, translation in translator.translate_stream(_texts(lines, path or STANDARD_INPUT), at_once):
            yield source, " ".join(translation.splitlines())
            done += len(source.encode()) + 1 if plain else 1
            progress("translate", done, total, unit)
        progress("translate", total or done, total or done, unit)


@contextmanager
def output_file(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when all of it is written.

    A link is followed; what is no regular file, such as a pipe or a device, is written to as it is.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    place = path.resolve()
    with explained_write_errors(path), place.open("wb") if _is_special(place) else whole_file(place) as file:
        yield file


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    """The text of a file, unpacked, or of standard input."""
    if path is None:
        yield sys.stdin.buffer
        return
    check_file(path)
    if path.suffix == PACKED:
        with gzip.open(path) as text:
            yield text  # type: ignore[misc]  # it has all of a BinaryIO that is used here
        return
    with path.open("rb") as file:
        check_start(path, file.peek(8)[:8])
        yield file


def _texts(lines: BinaryIO, path: Path) -> Iterator[str]:
    try:
        for number, line in enumerate(read_lines(lines), 1):
            yield decoded(line.removeprefix(BOM) if line and number == 1 else line, path, number)
    except (EOFError, gzip.BadGzipFile) as error:
        raise unreadable(path, OSError(str(error))) from error
