"""Finds pairs that came before, whatever the size of the corpus: by their digests, a part of all digests at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.prepare.scan import CHUNK_LINES
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.shards import map_array, write_array

# 128 bits: not one false alarm is to be expected in a million corpora of a billion pairs.
_DIGEST = np.dtype([("high", ">u8"), ("low", ">u8")])
# Aligned, or searching in a mapped file would copy it first.
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("line", "<u4")], align=True)

# Digests compared at once: some 50 MB with what sorting takes.
_AT_ONCE = 1 << 20
# Digests are divided by their upper 16 bits.
_PREFIXES, _SHIFT = 1 << 16, 48


class PairDigests:
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
    for entries in map(map_array, files):
        if len(entries):
            places = np.minimum(np.searchsorted(entries["high"], high), len(entries) - 1)
            found |= (entries["high"][places] == high) & (entries["low"][places] == low)
    return int(found.sum())


def find_duplicates(chunks: int, pairs: int, stages: StageRunner) -> list[NDArray[np.uint64]]:
    """Sorted arrays of where, counting all lines of all chunks, a pair stands that stood somewhere before.

    Each array is of the digests with some of the prefixes, which are compared at once; equal pairs are in the same.
    """
    files = [stages.chunk_file("digests", number) for number in range(chunks)]
    count = min(max(1, -(-pairs // _AT_ONCE)), _PREFIXES)
    places = [stages.chunk_file("duplicates", number) for number in range(count)]
    bounds = pairwise(_PREFIXES * number // count for number in range(count + 1))
    calls = [partial(_find, files, first, end, place) for (first, end), place in zip(bounds, places, strict=True)]
    list(stages.run("find duplicates", calls))
    return [map_array(place) for place in places]


def _find(files: Sequence[Path], first: int, end: int, place: Path) -> None:
    """Write where the pairs stand that came before, among those whose digests have a prefix in a range."""
    entries, rows = [], []
    for number, path in enumerate(files):
        part = _with_prefixes(map_array(path), first, end)
        entries.append(part)
        rows.append(part["line"].astype(np.uint64) + np.uint64(number * CHUNK_LINES))
    together, row = np.concatenate(entries), np.concatenate(rows)
    order = np.lexsort((row, together["low"], together["high"]))
    together, row = together[order], row[order]
    again = (together["high"][1:] == together["high"][:-1]) & (together["low"][1:] == together["low"][:-1])
    write_array(place, np.sort(row[1:][again]))


def _with_prefixes(entries: NDArray[Any], first: int, end: int) -> NDArray[Any]:
    high = entries["high"]
    start = np.searchsorted(high, np.uint64(first << _SHIFT))
    stop = np.searchsorted(high, np.uint64(end << _SHIFT)) if end < _PREFIXES else len(high)
    return np.array(entries[start:stop])


def lines_in_chunk(duplicates: Iterable[NDArray[np.uint64]], number: int) -> NDArray[np.intp]:
    """The lines of one chunk among the duplicates of all chunks, counted from its first line."""
    bounds = np.array([number, number + 1], dtype=np.uint64) * np.uint64(CHUNK_LINES)
    found = [rows[slice(*np.searchsorted(rows, bounds))] for rows in duplicates]
    lines: NDArray[np.intp] = (np.concatenate(found) - bounds[0]).astype(np.intp)
    return lines
