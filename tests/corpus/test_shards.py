"""Shards: what is written is read, across shards, without copies, in order of length, and damage is seen."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.corpus.shards import EncodedPairs, EncodedSide, id_dtype, write_order, write_pairs, write_shard
from tandem.errors import TandemError

# Hundreds of small corpora, each brought to the disk, would take a minute where the disk is busy.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

Pair = tuple[list[int], list[int]]
PAIRS: list[Pair] = [([5, 6], [7]), ([], [8, 9]), ([300], []), ([], []), ([1, 2, 3], [4, 5, 6])]


@st.composite
def _corpora(draw: st.DrawFn) -> tuple[int, list[Pair]]:
    vocab_size = draw(st.sampled_from([300, 1 << 16, (1 << 16) + 1, 100_000]))
    sentence = st.lists(st.integers(0, vocab_size - 1), max_size=6)
    return vocab_size, draw(st.lists(st.tuples(sentence, sentence), max_size=9))


def _side(sentences: Sequence[list[int]], dtype: str = "<u2") -> EncodedSide:
    return EncodedSide(
        np.array([*chain.from_iterable(sentences)], dtype), np.array([len(ids) for ids in sentences], np.int64)
    )


def _by_length(pairs: Sequence[Pair]) -> list[int]:
    """The rows by target length, then source length, which runs up under odd target lengths and down under even."""

    def place(row: int) -> tuple[int, int, int]:
        source, target = map(len, pairs[row])
        return target, source if target % 2 == 1 else -source, row

    return sorted(range(len(pairs)), key=place)


def _read(pairs: EncodedPairs, rows: Sequence[int]) -> list[Pair]:
    """Some pairs, read all together."""
    sides = [np.split(side.ids, np.cumsum(side.lengths)[:-1]) for side in pairs.read(rows)]
    return [(source.tolist(), target.tolist()) for source, target in zip(*sides, strict=True)]


@pytest.mark.slow
@settings(max_examples=60)
@given(_corpora(), st.integers(1, 4))
def test_round_trip(corpus: tuple[int, list[Pair]], pairs_per_shard: int) -> None:
    vocab_size, pairs = corpus
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        directory = Path(folder)
        write_pairs(directory, iter(pairs), vocab_size=vocab_size, pairs_per_shard=pairs_per_shard)
        opened = EncodedPairs(directory)
        assert [(opened.source(i).tolist(), opened.target(i).tolist()) for i in range(len(opened))] == pairs
        shards = len(list(directory.glob("*.source.npy")))
        assert shards == max(1, -(-len(pairs) // pairs_per_shard))
        rows = _by_length(pairs)
        assert opened.order.tolist() == rows
        cells = [(len(pairs[row][0]), len(pairs[row][1])) for row in rows]
        assert opened.cells.tolist() == [[*cell, len(list(same))] for cell, same in groupby(cells)]
        if pairs:
            assert opened.source(0).dtype == id_dtype(vocab_size)
            assert _read(opened, rows) == [pairs[row] for row in rows]


def test_ids_take_the_room_they_need() -> None:
    assert (id_dtype(1 << 16), id_dtype((1 << 16) + 1)) == (np.dtype("<u2"), np.dtype("<u4"))


@pytest.mark.parametrize("empty", [(0,), (2,), (5,), (0, 1, 3, 4), range(6)])
def test_empty_shards(tmp_path: Path, empty: Sequence[int]) -> None:
    """All pairs of a shard may have been dropped."""
    written: list[Pair] = []
    for number in range(6):
        pairs = [] if number in empty else PAIRS[: number + 1]
        write_shard(tmp_path, number, _side([pair[0] for pair in pairs]), _side([pair[1] for pair in pairs]))
        written += pairs
    write_order(tmp_path)
    opened = EncodedPairs(tmp_path)
    assert len(opened) == len(written)
    assert [(opened.source(i).tolist(), opened.target(i).tolist()) for i in range(len(opened))] == written
    assert opened.order.tolist() == _by_length(written)


def test_files_are_the_same_every_time_and_everywhere(tmp_path: Path) -> None:
    """Byte for byte, whichever shard was written first, however the ids lay in memory."""
    for directory, numbers, dtype in ((tmp_path / "a", (0, 1), "<u2"), (tmp_path / "b", (1, 0), ">u2")):
        directory.mkdir()
        for number in numbers:
            write_shard(directory, number, _side([[number, 5], []], dtype), _side([[6], [7]], dtype))
        write_order(directory)
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab")
    assert first == second
    assert len(first) == 4 * 2 + 2
    for content in first.values():
        assert b"'descr': '<" in content


@contextmanager
def _small_files(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: what a full disk looks like to whoever writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_write_leaves_no_half_file(tmp_path: Path) -> None:
    side = _side([[1] * 5] * 500)
    with _small_files(1000), pytest.raises(OSError, match="File too large"):
        write_shard(tmp_path, 0, side, side)
    assert not list(tmp_path.iterdir())
    write_shard(tmp_path, 0, side, side)
    whole = sorted(tmp_path.iterdir())
    with _small_files(1000), pytest.raises(OSError, match="File too large"):
        write_order(tmp_path)
    assert sorted(tmp_path.iterdir()) == whole


def test_sentences_are_read_only_views_of_the_files(tmp_path: Path) -> None:
    write_pairs(tmp_path, PAIRS, vocab_size=1000, pairs_per_shard=2)
    pairs = EncodedPairs(tmp_path)
    sentence = pairs.source(0)
    assert not sentence.flags.owndata
    assert str(tmp_path / "00000.source.npy") in Path("/proc/self/maps").read_text()
    with pytest.raises(ValueError, match="read-only"):
        sentence[0] = 1


@pytest.mark.parametrize("index", [-1, 5, 99])
def test_an_index_outside_is_an_error(tmp_path: Path, index: int) -> None:
    write_pairs(tmp_path, PAIRS, vocab_size=1000, pairs_per_shard=2)
    pairs = EncodedPairs(tmp_path)
    for ask in (pairs.source, pairs.target, lambda asked: pairs.read([0, asked])):
        with pytest.raises(IndexError, match=f"pair {index} of 5"):
            ask(index)


def test_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write_pairs(tmp_path, [([70_000], [1])], vocab_size=1000)


@pytest.mark.parametrize(
    "name", ["00000.source.npy", "00001.target.npy", "00001.source.offsets.npy", "order.npy", "cells.npy"]
)
@pytest.mark.parametrize("damage", ["cut", "emptied", "garbled", "gone", "other array"])
def test_damage_is_named(tmp_path: Path, name: str, damage: str) -> None:
    write_pairs(tmp_path, PAIRS, vocab_size=1000, pairs_per_shard=3)
    path = tmp_path / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "emptied":
        path.write_bytes(b"")
    elif damage == "garbled":
        path.write_bytes(b"x" * 200)
    elif damage == "other array":
        np.save(path, np.zeros((2, 3)))
    elif name == "00000.source.npy":
        shutil.copy(path, tmp_path / "00002.source.npy")  # still two shards by number of files
        path.unlink()
    else:
        path.unlink()
    with pytest.raises(TandemError, match=r"\.npy: damaged shard.*tandem prepare") as e:
        EncodedPairs(tmp_path)
    assert name in str(e.value)
    assert "\n" not in str(e.value)


def test_offsets_of_another_shard_are_seen(tmp_path: Path) -> None:
    write_pairs(tmp_path, PAIRS[:4], vocab_size=1000, pairs_per_shard=2)
    shutil.copy(tmp_path / "00000.target.offsets.npy", tmp_path / "00001.target.offsets.npy")
    with pytest.raises(TandemError, match="does not fit its ids"):
        EncodedPairs(tmp_path)


def test_sides_of_different_length_are_seen(tmp_path: Path) -> None:
    write_pairs(tmp_path, [([1], [1]), ([2], [])], vocab_size=1000)
    np.save(tmp_path / "00000.target.offsets.npy", np.array([0, 1]))
    with pytest.raises(TandemError, match="differ in length"):
        EncodedPairs(tmp_path)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("order.npy", np.zeros(4, "<u4"), "4 rows for 5 pairs"),
        ("cells.npy", np.array([[0, 0, 4]]), "other pairs or tokens"),
        ("cells.npy", np.array([[0, 0, 5]]), "other pairs or tokens"),
        ("cells.npy", np.array([[0, 0, 6], [0, 0, -1]]), "no lengths and counts"),
        ("cells.npy", np.array([[0, 5]]), "no lengths and counts"),
    ],
)
def test_an_order_of_other_shards_is_seen(tmp_path: Path, name: str, values: np.ndarray, reason: str) -> None:
    write_pairs(tmp_path, PAIRS, vocab_size=1000)
    np.save(tmp_path / name, values)
    with pytest.raises(TandemError, match=rf"{name}: damaged shard \(.*{reason}"):
        EncodedPairs(tmp_path)


def test_a_directory_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="no token shards"):
        EncodedPairs(tmp_path / "nowhere")


READ_MANY = """
import os, resource, sys
from pathlib import Path
from tandem.corpus.shards import EncodedPairs
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
pairs = EncodedPairs(Path(sys.argv[1]))
source, target = pairs.read(range(len(pairs)))
print(len(os.listdir("/proc/self/fd")), source.ids.tolist() == target.ids.tolist() == list(range(len(pairs))))
"""


@pytest.mark.slow
def test_open_shards_hold_no_file_descriptors(tmp_path: Path) -> None:
    write_pairs(tmp_path, (([n], [n]) for n in range(400)), vocab_size=1000, pairs_per_shard=1)
    assert len(list(tmp_path.glob("*.npy"))) > 1600
    command = [sys.executable, "-c", READ_MANY, str(tmp_path)]
    descriptors, same = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert int(descriptors) < 20
    assert same == "True"
