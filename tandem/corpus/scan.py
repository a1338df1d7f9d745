"""Reads every input file once: how long it is, its checksum, and where each chunk of its lines begins.

A chunk is the unit of all later work: a stretch of lines that any process can go to at once, in the source and in
the target. What cannot be gone to (gzip, a pipe) is unpacked beside.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tandem.config import Section
from tandem.corpus.text import BOM, GZIP_MAGIC, RawLine, check_start, read_line, split_lines, unreadable
from tandem.errors import TandemError
from tandem.files import whole_file

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_LINES = 1 << 16
"""Lines of a chunk: half a second of work, some 9 MB of text a side, 70 chunks in WMT16."""

# A chunk of lines up to a thousand bytes long is read at once; one with longer lines might fill the memory.
_AT_ONCE = CHUNK_LINES * 1000
# Large enough that Python has little to do, small enough to stay in the processor's cache.
_BLOCK = 1 << 20


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class ScannedText(Section):
    """One input file, read through once."""

    name: str
    """File name without its directory, or where the file came from."""
    path: Path
    """Where the plain text is: the file itself, or what was unpacked from it."""
    file_bytes: int
    """Bytes of the file as it lies on the disk, packed if it is."""
    sha256: str
    """Checksum of the file as it lies on the disk: what `sha256sum FILE` says."""
    lines: int
    """Lines; a last line without its newline counts."""
    bytes: int
    """Bytes of text, unpacked: what `zcat FILE | wc -c` says."""
    starts: list[int]
    """The byte at which each chunk begins, and the end of the last."""


@dataclass(frozen=True)
class ScannedPair:
    """A source and a target file that belong together, as long as each other."""

    source: ScannedText
    target: ScannedText

    @property
    def lines(self) -> int:
        """Lines that have a partner."""
        return min(self.source.lines, self.target.lines)

    @cached_property
    def chunks(self) -> int:
        """Chunks of these lines."""
        return -(-self.lines // CHUNK_LINES)

    def lines_in(self, chunk: int) -> int:
        """Lines of one chunk: all are full but the last."""
        return min(CHUNK_LINES, self.lines - chunk * CHUNK_LINES)


@dataclass(frozen=True)
class Chunk:
    """A stretch of lines of one pair of files; its number counts the chunks of all pairs of a split."""

    number: int
    pair: ScannedPair
    index: int

    @property
    def lines(self) -> int:
        """Lines of each side."""
        return self.pair.lines_in(self.index)

    def raw_pairs(self) -> Iterator[tuple[RawLine, RawLine]]:
        """The lines, in pairs."""
        return raw_pairs(self.pair, self.index)


def chunks_of(pairs: Iterable[ScannedPair]) -> list[Chunk]:
    """All chunks of a split, in the order of its lines."""
    places = [(pair, index) for pair in pairs for index in range(pair.chunks)]
    return [Chunk(number, pair, index) for number, (pair, index) in enumerate(places)]


def scan(path: Path, unpacked: Path, read: Callable[[int], None]) -> ScannedText:
    """Read a file through; `unpacked` is where its text may go, and `read` hears how many bytes were read."""
    lines = _LineCounter()
    try:
        with _HashedFile(path, read) as stored, io.BufferedReader(stored, _BLOCK) as buffered:
            packed = path.suffix == ".gz"
            blocks = _counted(_gunzipped(path, buffered) if packed else buffered, path, lines)
            in_place = stored.is_regular and not packed
            if in_place:
                deque(blocks, maxlen=0)
            else:
                _unpack(blocks, unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, lines.lines, error) from error
    lines.finish()
    if not lines.lines:
        raise TandemError(f"{path}: the file is empty; give a file with one sentence a line")
    return ScannedText(
        name=_printable(path),
        path=path.resolve() if in_place else unpacked,
        file_bytes=stored.count,
        sha256=stored.checksum.hexdigest(),
        lines=lines.lines,
        bytes=lines.bytes,
        starts=lines.starts,
    )


def raw_lines(text: ScannedText, chunk: int, count: int) -> Iterator[RawLine]:
    """The first `count` lines of a chunk, without line ends and byte-order mark."""
    start, end = text.starts[chunk : chunk + 2]
    with text.path.open("rb", buffering=_BLOCK) as file:
        file.seek(start)
        # Cutting up a whole chunk is several times as fast as reading line by line.
        at_once = end - start <= _AT_ONCE and count > CHUNK_LINES // 2
        lines = iter(split_lines(file.read(end - start))) if at_once else map(read_line, repeat(file))
        for number in range(count):
            try:
                line = next(lines)
            except (StopIteration, EOFError):
                raise TandemError(f"{text.path}: was changed while it was being read; start again") from None
            yield line.removeprefix(BOM) if not number and not chunk and line is not None else line


def raw_pairs(pair: ScannedPair, chunk: int, most: int = CHUNK_LINES) -> Iterator[tuple[RawLine, RawLine]]:
    """The pairs of lines of one chunk, or the first of them."""
    count = min(most, pair.lines_in(chunk))
    return zip(raw_lines(pair.source, chunk, count), raw_lines(pair.target, chunk, count), strict=True)


def pairs_at(pair: ScannedPair, lines: Iterable[int]) -> list[tuple[RawLine, RawLine]]:
    """The pairs at some line numbers, which count from 0 and go up."""
    found: list[tuple[RawLine, RawLine]] = []
    for chunk, wanted in groupby(lines, lambda line: line // CHUNK_LINES):
        places = {line - chunk * CHUNK_LINES for line in wanted}
        found += [here for place, here in enumerate(raw_pairs(pair, chunk)) if place in places]
    return found


def copy_text(texts: Iterable[ScannedText], place: Path) -> None:
    """Write the lines of texts to one file, with plain line ends."""
    with whole_file(place) as copy:
        for text in texts:
            for chunk in range(len(text.starts) - 1):
                for line in raw_lines(text, chunk, min(CHUNK_LINES, text.lines - chunk * CHUNK_LINES)):
                    copy.write((line or b"") + b"\n")


class _HashedFile(io.RawIOBase):
    """An open file that takes the checksum of what is read from it, so that each input is read only once."""

    def __init__(self, path: Path, read: Callable[[int], None]) -> None:
        self._path = path
        with self._told():
            self._file = path.open("rb", buffering=0)
        self._read = read
        self.checksum = hashlib.sha256()
        self.count = 0
        self.is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        with self._told():
            count = self._file.readinto(buffer) or 0
        self.checksum.update(memoryview(buffer)[:count])
        self.count += count
        self._read(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Trouble with reading is the input's; other trouble, as with a full disk, is not."""
        try:
            yield
        except OSError as error:
            raise unreadable(self._path, error) from error


class _LineCounter:
    """Counts the lines of a text that passes by in blocks, and notes where chunks begin."""

    def __init__(self) -> None:
        self.lines = self.bytes = 0
        self.starts = [0]
        self._complete = True

    def add(self, block: bytes) -> None:
        newlines = block.count(b"\n")
        if self.lines + newlines >= len(self.starts) * CHUNK_LINES:
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            first = len(self.starts) * CHUNK_LINES - self.lines - 1
            self.starts += (self.bytes + 1 + ends[first::CHUNK_LINES]).tolist()
        self.lines += newlines
        self.bytes += len(block)
        self._complete = block.endswith(b"\n")

    def finish(self) -> None:
        if not self._complete:
            self.lines += 1
        if self.starts[-1] != self.bytes:
            self.starts.append(self.bytes)


def _counted(file: _Readable, path: Path, lines: _LineCounter) -> Iterator[bytes]:
    """The blocks of a text, counted."""
    # Not read(): that loses what comes before a damage.
    while block := file.read1(_BLOCK):
        if not lines.bytes:
            check_start(path, block)
        lines.add(block)
        yield block


def _unpack(blocks: Iterable[bytes], place: Path) -> None:
    """Write a text to its place, where it appears whole."""
    place.unlink(missing_ok=True)  # of an earlier attempt: a disk that was full has no room for two
    with whole_file(place) as copy:
        for block in blocks:
            copy.write(block)


def _gunzipped(path: Path, stored: io.BufferedReader[_HashedFile]) -> gzip.GzipFile:
    if stored.peek(2)[:2] not in (GZIP_MAGIC, b""):
        raise TandemError(f"{path}: not a gzip file though its name ends in .gz; rename it or compress it")
    return gzip.GzipFile(fileobj=stored)


def _damaged(path: Path, lines: int, error: Exception) -> TandemError:
    if isinstance(error, EOFError):
        return TandemError(f"{path}: the gzip file is cut short after line {lines}; fetch or compress it again")
    return TandemError(f"{path}: the gzip file is damaged after line {lines} ({error}); fetch or compress it again")


def _printable(path: Path) -> str:
    # A name in another encoding than UTF-8 would make corpus.json unwritable.
    return os.fsencode(path.name).decode("utf-8", "replace")
