"""Lines of text from a file, a pipe or a person, translated in order and in constant memory."""

from __future__ import annotations

import gzip
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
    total = None if path is None or path.suffix == PACKED else _count_lines(path)
    # A person waits for the answer to each line.
    at_once = 1 if path is None and sys.stdin.isatty() else LINES_AT_ONCE
    done = 0
    for source, translation in translator.translate_stream(text_lines(path), at_once):
        yield source, " ".join(translation.splitlines())
        done += 1
        progress("translate", done, total, "lines")
    progress("translate", done, done, "lines")


def text_lines(path: Path | None) -> Iterator[str]:
    """The lines of a file, plain or packed, or of standard input; in UTF-8, without a byte-order mark."""
    with _opened(path) as lines:
        name = path or STANDARD_INPUT
        try:
            for number, line in enumerate(read_lines(lines), 1):
                yield decoded(line.removeprefix(BOM) if line and number == 1 else line, name, number)
        except (EOFError, gzip.BadGzipFile) as error:
            raise unreadable(name, OSError(str(error))) from error


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


def _count_lines(path: Path) -> int | None:
    """The lines of a plain file, also if the last one does not end; None for what can be read only once."""
    check_file(path)
    if not path.is_file():
        return None
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
