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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tandem.corpus.prepared import InputFacts
from tandem.corpus.text_files import (
    BOM,
    GZIP_MAGIC,
    FilePair,
    RawLine,
    RawPair,
    check_start,
    read_lines,
    split_lines,
    unreadable,
)
from tandem.errors import TandemError
from tandem.storage import whole_file

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Result = TypeVar("Result")

CHUNK_LINES = 1 << 16
"""Lines of a chunk: half a second of work, some 9 MB of text a side, 70 chunks in WMT16."""

# A chunk of lines up to a thousand bytes long is read at once; one with longer lines might fill the memory.
_AT_ONCE = CHUNK_LINES * 1000
# Large enough that Python has little to do, small enough to stay in the processor's cache.
_BLOCK = 1 << 20


class ScannedText(InputFacts):
    """One input file, read through once."""

    file: Path
    """The file as the user named it."""
    path: Path
    """Where the plain text is: the file itself, or what was unpacked from it."""
    text_bytes: int
    """Bytes of text, unpacked: what `zcat FILE | wc -c` says."""
    starts: list[int]
    """The byte at which each chunk begins, and the end of the last."""


@dataclass(frozen=True)
class ScannedPair:
    """A source and a target file that belong together."""

    source: ScannedText
    target: ScannedText

    @property
    def files(self) -> FilePair:
        return self.source.file, self.target.file

    @property
    def lines(self) -> int:
        """Lines that have a partner."""
        return min(self.source.lines, self.target.lines)

    @cached_property
    def chunks(self) -> int:
        return -(-self.lines // CHUNK_LINES)


@dataclass(frozen=True)
class Chunk:
    """A stretch of lines of one pair of files; its number counts the chunks of all pairs of a split."""

    number: int
    pair: ScannedPair
    index: int

    @property
    def lines(self) -> int:
        """Lines of each side: all chunks are full but the last of a pair."""
        return min(CHUNK_LINES, self.pair.lines - self.index * CHUNK_LINES)

    def raw_pairs(self, most: int | None = None) -> Iterator[RawPair]:
        """The lines in pairs, or the first of them."""
        count = self.lines if most is None else min(most, self.lines)
        sides = (raw_lines(text, self.index, count) for text in (self.pair.source, self.pair.target))
        return zip(*sides, strict=True)


@dataclass(frozen=True)
class Split:
    """The text of train, test or a dev set, read through."""

    name: str
    pairs: Sequence[ScannedPair]

    @property
    def sides(self) -> tuple[list[ScannedText], list[ScannedText]]:
        """All source texts and all target texts."""
        return [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]

    @cached_property
    def chunks(self) -> list[Chunk]:
        """All lines in stretches, in their order."""
        places = [(pair, index) for pair in self.pairs for index in range(pair.chunks)]
        return [Chunk(number, pair, index) for number, (pair, index) in enumerate(places)]

    def by_pair(self, results: Iterable[Result]) -> Iterator[tuple[ScannedPair, list[Result]]]:
        """The pairs of files, each with its part of the results of all chunks."""
        remaining = iter(results)
        return ((pair, list(islice(remaining, pair.chunks))) for pair in self.pairs)


def scan(path: Path, unpacked: Path, read: Callable[[int], None]) -> ScannedText:
    """Read a file through; `unpacked` is where its text may go, and `read` is called with each number of bytes read."""
    lines = _LineCounter()
    try:
        with _HashedFile(path, read) as stored, io.BufferedReader(stored, _BLOCK) as buffered:
            packed = path.suffix == ".gz"
            if packed and buffered.peek(2)[:2] not in (GZIP_MAGIC, b""):
                raise TandemError(f"{path}: not a gzip file though its name ends in .gz; rename it or compress it")
            blocks = _blocks(gzip.GzipFile(fileobj=buffered) if packed else buffered, path, lines)
            in_place = stored.is_regular and not packed
            if in_place:
                deque(blocks, maxlen=0)
            else:
                unpacked.unlink(missing_ok=True)  # of an earlier attempt: a disk that was full has no room for two
                with whole_file(unpacked) as copy:
                    copy.writelines(blocks)
    except EOFError as error:
        what = f"cut short after line {lines.lines}"
        raise TandemError(f"{path}: the gzip file is {what}; fetch or compress it again") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        what = f"damaged after line {lines.lines} ({error})"
        raise TandemError(f"{path}: the gzip file is {what}; fetch or compress it again") from error
    lines.finish()
    if not lines.lines:
        raise TandemError(f"{path}: the file is empty; give a file with one sentence a line")
    return ScannedText(
        # A name in another encoding than UTF-8 would make corpus.json unwritable.
        name=os.fsencode(path.name).decode("utf-8", "replace"),
        bytes=stored.count,
        sha256=stored.checksum.hexdigest(),
        lines=lines.lines,
        file=path,
        path=path.resolve() if in_place else unpacked,
        text_bytes=lines.bytes,
        starts=lines.starts,
    )


def raw_lines(text: ScannedText, chunk: int, count: int) -> Iterator[RawLine]:
    """The first `count` lines of a chunk, without line ends and byte-order mark."""
    start, end = text.starts[chunk : chunk + 2]
    with text.path.open("rb", buffering=_BLOCK) as file:
        file.seek(start)
        # Cutting up a whole chunk is several times as fast as reading line by line.
        at_once = end - start <= _AT_ONCE and count > CHUNK_LINES // 2
        lines = iter(split_lines(file.read(end - start))) if at_once else read_lines(file)
        for number in range(count):
            try:
                line = next(lines)
            except StopIteration:
                raise TandemError(f"{text.path}: was changed while it was being read; start again") from None
            yield line.removeprefix(BOM) if not number and not chunk and line is not None else line


def all_lines(text: ScannedText) -> Iterator[RawLine]:
    chunks = range(len(text.starts) - 1)
    return chain.from_iterable(
        raw_lines(text, chunk, min(CHUNK_LINES, text.lines - chunk * CHUNK_LINES)) for chunk in chunks
    )


def pairs_at(pair: ScannedPair, lines: Iterable[int]) -> list[RawPair]:
    """The pairs at some line numbers, which count from 0 and go up."""
    found: list[RawPair] = []
    for index, wanted in groupby(lines, lambda line: line // CHUNK_LINES):
        places = {line - index * CHUNK_LINES for line in wanted}
        found += [here for place, here in enumerate(Chunk(0, pair, index).raw_pairs()) if place in places]
    return found


class _HashedFile(io.RawIOBase):
    """An open file that takes the checksum of what is read from it, so that each input is read only once."""

    def __init__(self, path: Path, read: Callable[[int], None]) -> None:
        self._path = path
        with self._explained_errors():
            self._file = path.open("rb", buffering=0)
        self._read = read
        self.checksum = hashlib.sha256()
        self.count = 0
        self.is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        with self._explained_errors():
            count = self._file.readinto(buffer) or 0
        self.checksum.update(memoryview(buffer)[:count])
        self.count += count
        self._read(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
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


def _blocks(file: io.BufferedIOBase, path: Path, lines: _LineCounter) -> Iterator[bytes]:
    """The blocks of a text, counted."""
    # Not read(): that loses what comes before a damage.
    while block := file.read1(_BLOCK):
        if not lines.bytes:
            check_start(path, block)
        lines.add(block)
        yield block
