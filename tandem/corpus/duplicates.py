"""Finds pairs that came before, whatever the size of the corpus: by their digests, a part of all digests at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.arrays import write_array
from tandem.corpus.scan import CHUNK_LINES

# 128 bits: not one false alarm is to be expected in a million corpora of a billion pairs.
_DIGEST = np.dtype([("high", ">u8"), ("low", ">u8")])
# Aligned, or searching in a mapped file would copy it first.
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("line", "<u4")], align=True)

# Digests compared at once: some 50 MB with what sorting takes.
_AT_ONCE = 1 << 20


class Digests:
    """The digests of a chunk's different pairs, in the making."""

    def __init__(self) -> None:
        self._lines: dict[bytes, int] = {}

    def add(self, line: int, source: str, target: str) -> bool:
        """Note the pair of a line; False if the chunk had it before."""
        return self._lines.setdefault(_digest(source.encode(), target.encode()), line) == line

    def write(self, path: Path) -> None:
        """Write them sorted, so that a part of them lies together."""
        digests = np.frombuffer(b"".join(self._lines), dtype=_DIGEST)
        entries = np.zeros(len(digests), dtype=_ENTRY)
        entries["high"], entries["low"], entries["line"] = digests["high"], digests["low"], [*self._lines.values()]
        write_array(path, entries[np.argsort(entries["high"], kind="stable")])


def _digest(source: bytes, target: bytes) -> bytes:
    # A line has no newline inside, so no two different pairs look alike.
    return hashlib.blake2b(source + b"\n" + target, digest_size=16).digest()


def count_among(pairs: Iterable[tuple[bytes, bytes]], files: Sequence[Path]) -> int:
    """How many of a few thousand pairs stand among those whose digests are in the files of chunks."""
    wanted = np.frombuffer(b"".join(_digest(*pair) for pair in pairs), dtype=_DIGEST)
    high, low = wanted["high"].astype(np.uint64), wanted["low"].astype(np.uint64)
    found = np.zeros(len(wanted), dtype=bool)
    for path in files:
        entries = np.load(path, mmap_mode="r")
        if len(entries):
            places = np.minimum(np.searchsorted(entries["high"], high), len(entries) - 1)
            found |= (entries["high"][places] == high) & (entries["low"][places] == low)
    return int(found.sum())


@dataclass(frozen=True)
class Portion:
    """The digests of all chunks that begin with a number from `first` up to but not including `end`, of 65,536."""

    files: Sequence[Path]
    """The digests of each chunk, by its number."""
    first: int
    end: int
    place: Path
    """Where to leave what is found."""


def portions(files: Sequence[Path], pairs: int, places: Callable[[int], Path]) -> list[Portion]:
    """All digests in portions that are compared one at a time; equal pairs are in the same one."""
    count = min(max(1, -(-pairs // _AT_ONCE)), 1 << 16)
    bounds = [(1 << 16) * number // count for number in range(count + 1)]
    return [Portion(files, bounds[number], bounds[number + 1], places(number)) for number in range(count)]


def find_duplicates(portion: Portion) -> Path:
    """Note where, counting all lines of all chunks, a pair stands that stood somewhere before."""
    entries, rows = [], []
    for number, path in enumerate(portion.files):
        part = _part(np.load(path, mmap_mode="r"), portion)
        entries.append(part)
        rows.append(part["line"].astype(np.uint64) + np.uint64(number * CHUNK_LINES))
    together, row = np.concatenate(entries), np.concatenate(rows)
    order = np.lexsort((row, together["low"], together["high"]))
    together, row = together[order], row[order]
    again = (together["high"][1:] == together["high"][:-1]) & (together["low"][1:] == together["low"][:-1])
    write_array(portion.place, np.sort(row[1:][again]))
    return portion.place


def _part(entries: NDArray[Any], portion: Portion) -> NDArray[Any]:
    shift = np.uint64(48)
    high = entries["high"]
    first = np.searchsorted(high, np.uint64(portion.first) << shift)
    end = np.searchsorted(high, np.uint64(portion.end) << shift) if portion.end < 1 << 16 else len(high)
    return np.array(entries[first:end])


def in_chunk(duplicates: Iterable[NDArray[np.uint64]], number: int) -> NDArray[np.intp]:
    """The lines of one chunk among the duplicates of all portions, counted from its first line."""
    bounds = np.array([number, number + 1], dtype=np.uint64) * np.uint64(CHUNK_LINES)
    found = [rows[slice(*np.searchsorted(rows, bounds))] for rows in duplicates]
    lines: NDArray[np.intp] = (np.concatenate(found) - bounds[0]).astype(np.intp)
    return lines
