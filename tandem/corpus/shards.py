"""Token ids of one split on the disk, memory-mapped: opening costs nothing and processes share the pages.

A shard holds some of the pairs in four .npy files: for each side the ids of all its sentences end to end
(`00000.source.npy`) and where each sentence begins, with the end of the last (`00000.source.offsets.npy`).
Beside the shards lies the order of all pairs by length: `order.npy` has their rows, and `cells.npy` says how many
pairs in a row of that order have which source and which target length.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tandem.errors import TandemError
from tandem.layout import CORPUS_REMEDY
from tandem.storage import whole_file

Ids = Sequence[int]
IntArray = NDArray[np.int64]

SIDES = ("source", "target")
ORDER_FILE, CELLS_FILE = "order.npy", "cells.npy"

# About 50 MB of ids a side at 25 pieces a sentence: little to hold while writing.
_PAIRS_PER_SHARD = 1_000_000
# Byte order is spelt out so that the files of two hosts can be compared. Rows of 32 bits do for four billion pairs.
_OFFSETS, _ROWS, _CELLS = np.dtype("<i8"), np.dtype("<u4"), np.dtype("<i8")
# Of a cell: source length, target length, pairs; a sentence may be empty, a cell may not.
_SMALLEST_CELL = (0, 0, 1)
_CELL_COLUMNS = len(_SMALLEST_CELL)
# A key of the length order has the target length in its upper half and the source length in its lower.
_HALF = 32
_LOWER = (1 << _HALF) - 1


def write_array(path: Path, values: NDArray[Any]) -> None:
    """Store an array as an .npy file, whole or not at all."""
    with whole_file(path) as file:
        _write_header(file, values.dtype, values.shape)
        # Not by NumPy, whose error for a full disk does not say that the disk is full.
        file.write(np.ascontiguousarray(values).data)


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    description = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": description, "fortran_order": False, "shape": shape})


def map_array(path: Path) -> NDArray[Any]:
    """Map an .npy file into memory, read-only, without keeping a file descriptor.

    A large corpus has thousands of files, and Python's mmap, which NumPy uses, holds a descriptor for each; Arrow's
    maps outlive the closing of the file.
    """
    import pyarrow as pa

    header = np.lib.format.open_memmap(path, mode="r")
    with pa.memory_map(str(path)) as file:
        return np.ndarray(header.shape, header.dtype, file.read_buffer(), header.offset)


@dataclass(frozen=True)
class EncodedSide:
    """Some sentences of one language."""

    ids: NDArray[Any]
    """Piece numbers of all sentences end to end, uint16 or uint32."""
    lengths: NDArray[Any]
    """Pieces of each sentence, without BOS and EOS."""


def encoded_side(sentences: Sequence[Ids], dtype: np.dtype[Any]) -> EncodedSide:
    """Sentences that are lists of piece numbers, as arrays."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    return EncodedSide(np.fromiter(chain.from_iterable(sentences), dtype, int(lengths.sum())), lengths)


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """What the ids of a vocabulary are stored as."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_shard(directory: Path, number: int, source: EncodedSide, target: EncodedSide) -> None:
    """Write the four files of one shard; each appears whole or not at all."""
    assert len(source.lengths) == len(target.lengths)
    for name, side in (("source", source), ("target", target)):
        offsets = np.zeros(len(side.lengths) + 1, _OFFSETS)
        np.cumsum(side.lengths, out=offsets[1:])
        assert side.ids.dtype.kind == "u"
        assert offsets[-1] == len(side.ids)
        write_array(_shard_path(directory, number, name), side.ids.astype(side.ids.dtype.newbyteorder("<"), copy=False))
        write_array(_shard_path(directory, number, f"{name}.offsets"), offsets)


def write_order(directory: Path) -> None:
    """Write the order by length of all pairs in the shards there, holding one shard's lengths in memory at a time.

    A counting sort: the first pass over the shards counts the pairs of each cell, which tells where in the order
    each cell begins; the second puts every pair into its cell.
    """
    shards = _count_shards(directory)
    counted: Counter[int] = Counter()
    for number in range(shards):
        found, pairs = np.unique(_keys(directory, number), return_counts=True)
        counted.update(dict(zip(found.tolist(), pairs.tolist(), strict=True)))
    keys = np.array(sorted(counted), np.int64)
    counts = np.array([counted[key] for key in keys.tolist()], np.int64)
    with whole_file(directory / ORDER_FILE) as file:
        _write_header(file, _ROWS, (int(counts.sum()),))
        file.flush()
        _write_rows(file.fileno(), file.tell(), directory, shards, keys, np.cumsum(counts) - counts)
    write_array(directory / CELLS_FILE, np.stack([*_lengths_of(keys), counts], axis=1).astype(_CELLS))


def _write_rows(descriptor: int, offset: int, directory: Path, shards: int, keys: IntArray, free: IntArray) -> None:
    """Write each pair's row to the next free place of its cell; the rows of one cell and shard are neighbours.

    By plain writes, because a map of a new file ends the process, without a word, when the disk is full.
    """
    first_row = 0
    for number in range(shards):
        of_pairs = _keys(directory, number)
        order = np.argsort(of_pairs, kind="stable")
        found, starts, counts = np.unique(of_pairs[order], return_index=True, return_counts=True)
        cells, ends = np.searchsorted(keys, found), starts + counts
        rows = (order + first_row).astype(_ROWS).data
        for place, start, end in zip(free[cells].tolist(), starts.tolist(), ends.tolist(), strict=True):
            _write_at(descriptor, rows[start:end].cast("B"), offset + place * _ROWS.itemsize)
        free[cells] += counts
        first_row += len(order)


def _write_at(descriptor: int, data: memoryview, place: int) -> None:
    """Write all of it: the system may take less at a time, as it does just before a disk is full."""
    while data:
        written = os.pwrite(descriptor, data, place)
        data, place = data[written:], place + written


def _keys(directory: Path, number: int) -> IntArray:
    """Where the pairs of one shard belong in the length order: those with smaller keys come first.

    Target length is the outer key; source length runs up under odd target lengths and down under even ones, so that
    neighbouring cells stay alike in both.
    """
    source, target = (np.diff(_load(_shard_path(directory, number, f"{name}.offsets"), "i")) for name in SIDES)
    return (target << _HALF) | np.where(target % 2 == 1, source, _LOWER - source)


def _lengths_of(keys: IntArray) -> tuple[IntArray, IntArray]:
    """The source and target lengths that keys stand for."""
    target, lower = keys >> _HALF, keys & _LOWER
    return np.where(target % 2 == 1, lower, _LOWER - lower), target


def write_pairs(
    directory: Path, pairs: Iterable[tuple[Ids, Ids]], *, vocab_size: int, pairs_per_shard: int = _PAIRS_PER_SHARD
) -> None:
    """Write pairs of encoded sentences, in their order, holding one shard in memory at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    dtype, remaining = id_dtype(vocab_size), iter(pairs)
    for number in count():
        some = list(islice(remaining, pairs_per_shard))
        if some or number == 0:  # a corpus without pairs is still one (empty) shard
            sources, targets = ([pair[side] for pair in some] for side in (0, 1))
            write_shard(directory, number, encoded_side(sources, dtype), encoded_side(targets, dtype))
        if len(some) < pairs_per_shard:
            break
    write_order(directory)


class _ShardedSide:
    """One language of all shards."""

    def __init__(self, directory: Path, name: str, shards: int) -> None:
        self._ids = [_load(_shard_path(directory, number, name), "u") for number in range(shards)]
        self._offsets = [_load(_shard_path(directory, number, f"{name}.offsets"), "i") for number in range(shards)]
        for number, (ids, offsets) in enumerate(zip(self._ids, self._offsets, strict=True)):
            if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids):
                raise _damaged(_shard_path(directory, number, f"{name}.offsets"), "it does not fit its ids")
        self.pairs_in_shards = [len(offsets) - 1 for offsets in self._offsets]
        self.tokens = sum(map(len, self._ids))

    def sentence(self, shard: int, row: int) -> NDArray[Any]:
        offsets = self._offsets[shard]
        return self._ids[shard][offsets.item(row) : offsets.item(row + 1)]

    def sentences(self, places: Sequence[tuple[int, int]]) -> EncodedSide:
        found = [self.sentence(shard, row) for shard, row in places]
        return EncodedSide(np.concatenate(found), np.fromiter(map(len, found), np.int64, len(found)))


class EncodedPairs:
    """The encoded sentence pairs of one split; sentences are read-only views of the files."""

    def __init__(self, directory: Path) -> None:
        """Map the shards of a directory without reading them."""
        shards = _count_shards(directory)
        if not shards:
            raise TandemError(f"{directory}: no token shards here; {CORPUS_REMEDY}")
        self._source, self._target = (_ShardedSide(directory, name, shards) for name in SIDES)
        if self._source.pairs_in_shards != self._target.pairs_in_shards:
            raise _damaged(directory, "source and target differ in length")
        self._starts = np.cumsum([0, *self._source.pairs_in_shards])
        self.order: NDArray[np.uint32] = _load(directory / ORDER_FILE, "u")
        """All pairs sorted by length, those of equal lengths as they come."""
        self.cells: IntArray = _load(directory / CELLS_FILE, "i", dimensions=2)
        """One row for each run of equal lengths in that order: source length, target length, pairs."""
        self._directory = directory
        self._check_order(directory)

    def _check_order(self, directory: Path) -> None:
        """Refuse an order that is not of these shards, as far as can be told without reading them."""
        if len(self.order) != len(self):
            raise _damaged(directory / ORDER_FILE, f"{len(self.order)} rows for {len(self)} pairs")
        if self.cells.shape[1] != _CELL_COLUMNS or (self.cells < _SMALLEST_CELL).any():
            raise _damaged(directory / CELLS_FILE, "it holds no lengths and counts")
        source, target, pairs = self.cells.T
        if (pairs.sum(), source @ pairs, target @ pairs) != (len(self), self._source.tokens, self._target.tokens):
            raise _damaged(directory / CELLS_FILE, "it counts other pairs or tokens than the shards hold")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def source(self, index: int) -> NDArray[Any]:
        """Piece numbers of one source sentence, uint16 or uint32."""
        return self._source.sentence(*self._find([index])[0])

    def target(self, index: int) -> NDArray[Any]:
        """Piece numbers of one target sentence, uint16 or uint32."""
        return self._target.sentence(*self._find([index])[0])

    def rows_at(self, places: IntArray) -> IntArray:
        """The rows of the pairs at some places of the order by length."""
        rows = self.order[places].astype(np.int64)
        if (last := rows.max(initial=0)) >= len(self):
            raise _damaged(self._directory / ORDER_FILE, f"it names pair {last} of {len(self)}")
        return rows

    def read(self, rows: Ids | NDArray[np.integer]) -> tuple[EncodedSide, EncodedSide]:
        """Copies of the source and the target sentences of some pairs, at least one, in the order asked for."""
        places = self._find(rows)
        return self._source.sentences(places), self._target.sentences(places)

    def _find(self, rows: Ids | NDArray[np.integer]) -> list[tuple[int, int]]:
        """The shard of each pair, and its place there."""
        asked = np.asarray(rows, np.int64)
        outside = asked[(asked < 0) | (asked >= len(self))]
        if len(outside):
            raise IndexError(f"pair {outside[0]} of {len(self)}")
        # From the right: an empty shard begins where the next one does.
        shards = np.searchsorted(self._starts, asked, side="right") - 1
        return list(zip(shards.tolist(), (asked - self._starts[shards]).tolist(), strict=True))


def _count_shards(directory: Path) -> int:
    return len(list(directory.glob("*.source.npy")))


def _shard_path(directory: Path, number: int, array: str) -> Path:
    return directory / f"{number:05}.{array}.npy"


def _load(path: Path, kind: str, dimensions: int = 1) -> NDArray[Any]:
    try:
        loaded = map_array(path)
    except Exception as error:  # NumPy reads the header as Python source, and passes on whatever that raises
        raise _damaged(path, str(error)) from error
    if loaded.ndim != dimensions or loaded.dtype.kind != kind:
        raise _damaged(path, f"it holds {loaded.ndim}-dimensional {loaded.dtype}")
    return loaded


def _damaged(path: Path, reason: str) -> TandemError:
    why = " ".join(reason.split())
    return TandemError(f"{path}: damaged shard ({why}); {CORPUS_REMEDY}")
