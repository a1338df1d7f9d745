"""Token ids of one split on the disk, memory-mapped: opening costs nothing and processes share the pages.

A shard holds up to a million pairs in four .npy files: for each side the ids of all its sentences end to end
(`00000.source.npy`) and where each sentence begins, with the end of the last (`00000.source.offsets.npy`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.errors import TandemError

Ids = Sequence[int]

# About 50 MB of ids a side at 25 pieces a sentence: little to hold while writing, few files for WMT's 4.5 million.
_PAIRS_PER_SHARD = 1_000_000


def write_pairs(
    directory: Path, pairs: Iterable[tuple[Ids, Ids]], *, vocab_size: int, pairs_per_shard: int = _PAIRS_PER_SHARD
) -> None:
    """Write pairs of encoded sentences, in their order, holding one shard in memory at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    typecode = "H" if vocab_size <= 1 << 16 else "I"
    remaining = iter(pairs)
    for number in count():
        written = _write_shard(directory, number, islice(remaining, pairs_per_shard), typecode)
        if written < pairs_per_shard:
            return


def _write_shard(directory: Path, number: int, pairs: Iterator[tuple[Ids, Ids]], typecode: str) -> int:
    sides = {name: (array(typecode), array("q", [0])) for name in ("source", "target")}
    written = 0
    for pair in pairs:
        for (ids, offsets), sentence in zip(sides.values(), pair, strict=True):
            ids.extend(sentence)
            offsets.append(len(ids))
        written += 1
    if written or number == 0:  # a corpus without pairs is still one (empty) shard; a full last shard needs no other
        for name, (ids, offsets) in sides.items():
            # Byte order is spelt out so that the files of two hosts can be compared.
            np.save(directory / f"{number:05}.{name}.npy", np.asarray(ids, dtype=f"<u{ids.itemsize}"))
            np.save(directory / f"{number:05}.{name}.offsets.npy", np.asarray(offsets, dtype="<i8"))
    return written


class _Side:
    """One language of all shards."""

    def __init__(self, directory: Path, name: str, shards: int) -> None:
        self._ids = [_load(directory / f"{number:05}.{name}.npy", "u") for number in range(shards)]
        self._offsets = [_load(directory / f"{number:05}.{name}.offsets.npy", "i") for number in range(shards)]
        for number, (ids, offsets) in enumerate(zip(self._ids, self._offsets, strict=True)):
            if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids):
                raise _damaged(directory / f"{number:05}.{name}.offsets.npy", "it does not fit its ids")
        self.pairs_in_shards = [len(offsets) - 1 for offsets in self._offsets]

    def sentence(self, shard: int, row: int) -> NDArray[Any]:
        start, end = self._offsets[shard][row : row + 2]
        return self._ids[shard][start:end]

    def lengths(self) -> NDArray[np.int32]:
        return np.concatenate([np.diff(offsets).astype(np.int32) for offsets in self._offsets])


class Pairs:
    """The encoded sentence pairs of one split; sentences are read-only views of the files."""

    def __init__(self, source: _Side, target: _Side) -> None:
        self._source, self._target = source, target
        self._starts = list(accumulate(source.pairs_in_shards, initial=0))

    @classmethod
    def open(cls, directory: Path) -> Pairs:
        """Map the shards of a directory without reading them."""
        shards = len(list(directory.glob("*.source.npy")))
        if not shards:
            raise TandemError(f"{directory}: no token shards here; make the corpus with `tandem prepare`")
        source, target = (_Side(directory, name, shards) for name in ("source", "target"))
        if source.pairs_in_shards != target.pairs_in_shards:
            raise _damaged(directory, "source and target differ in length")
        return cls(source, target)

    def __len__(self) -> int:
        return self._starts[-1]

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Pieces of each source sentence, without BOS and EOS."""
        return self._source.lengths()

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Pieces of each target sentence, without BOS and EOS."""
        return self._target.lengths()

    def source(self, index: int) -> NDArray[Any]:
        """Piece numbers of one source sentence, uint16 or uint32."""
        return self._source.sentence(*self._find(index))

    def target(self, index: int) -> NDArray[Any]:
        """Piece numbers of one target sentence, uint16 or uint32."""
        return self._target.sentence(*self._find(index))

    def _find(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        shard = bisect_right(self._starts, index) - 1
        return shard, index - self._starts[shard]


def _load(path: Path, kind: str) -> NDArray[Any]:
    try:
        # asarray: a plain view of the map, because slicing the memmap class itself is several times slower.
        loaded: NDArray[Any] = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, str(error)) from error
    if loaded.ndim != 1 or loaded.dtype.kind != kind:
        raise _damaged(path, f"it holds {loaded.ndim}-dimensional {loaded.dtype}")
    return loaded


def _damaged(path: Path, reason: str) -> TandemError:
    why = " ".join(reason.split())
    return TandemError(f"{path}: damaged shard ({why}); copy the corpus again or make it with `tandem prepare`")
