"""Shards: what is written is read, across shards, without copies, and damage is seen."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.shards import Pairs, write_pairs
from tandem.errors import TandemError

PAIRS = [([5, 6], [7]), ([], [8, 9]), ([300], []), ([], []), ([1, 2, 3], [4, 5, 6])]


@st.composite
def _corpora(draw: st.DrawFn) -> tuple[int, list[tuple[list[int], list[int]]]]:
    vocab_size = draw(st.sampled_from([300, 1 << 16, (1 << 16) + 1, 100_000]))
    sentence = st.lists(st.integers(0, vocab_size - 1), max_size=6)
    return vocab_size, draw(st.lists(st.tuples(sentence, sentence), max_size=9))


@given(_corpora(), st.integers(1, 4))
def test_round_trip(corpus: tuple[int, list[tuple[list[int], list[int]]]], pairs_per_shard: int) -> None:
    vocab_size, pairs = corpus
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_pairs(directory, iter(pairs), vocab_size=vocab_size, pairs_per_shard=pairs_per_shard)
        opened = Pairs.open(directory)
        assert [(opened.source(i).tolist(), opened.target(i).tolist()) for i in range(len(opened))] == pairs
        assert opened.source_lengths.tolist() == [len(source) for source, _ in pairs]
        assert opened.target_lengths.tolist() == [len(target) for _, target in pairs]
        assert opened.source_lengths.dtype == opened.target_lengths.dtype == np.int32
        shards = len(list(directory.glob("*.source.npy")))
        assert shards == max(1, -(-len(pairs) // pairs_per_shard))
        if pairs:
            assert opened.source(0).dtype == (np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def test_sentences_are_read_only_views_of_the_files(tmp_path: Path) -> None:
    write_pairs(tmp_path, PAIRS, vocab_size=1000, pairs_per_shard=2)
    pairs = Pairs.open(tmp_path)
    sentence = pairs.source(0)
    assert not sentence.flags.owndata
    base = sentence
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        sentence[0] = 1


@pytest.mark.parametrize("index", [-1, 5, 99])
def test_an_index_outside_is_an_error(tmp_path: Path, index: int) -> None:
    write_pairs(tmp_path, PAIRS, vocab_size=1000, pairs_per_shard=2)
    with pytest.raises(IndexError, match=f"pair {index} of 5"):
        Pairs.open(tmp_path).source(index)


def test_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write_pairs(tmp_path, [([70_000], [1])], vocab_size=1000)


@pytest.mark.parametrize("name", ["00000.source.npy", "00001.target.npy", "00001.source.offsets.npy"])
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
        np.save(path, np.zeros((2, 2)))
    elif name == "00000.source.npy":
        shutil.copy(path, tmp_path / "00002.source.npy")  # still two shards by number of files
        path.unlink()
    else:
        path.unlink()
    with pytest.raises(
        TandemError, match=r"\d{5}\.(source|target)(\.offsets)?\.npy: damaged shard.*tandem prepare"
    ) as e:
        Pairs.open(tmp_path)
    assert name in str(e.value)
    assert "\n" not in str(e.value)


def test_offsets_of_another_shard_are_seen(tmp_path: Path) -> None:
    write_pairs(tmp_path, PAIRS[:4], vocab_size=1000, pairs_per_shard=2)
    shutil.copy(tmp_path / "00000.target.offsets.npy", tmp_path / "00001.target.offsets.npy")
    with pytest.raises(TandemError, match="does not fit its ids"):
        Pairs.open(tmp_path)


def test_sides_of_different_length_are_seen(tmp_path: Path) -> None:
    write_pairs(tmp_path, [([1], [1]), ([2], [])], vocab_size=1000)
    np.save(tmp_path / "00000.target.offsets.npy", np.array([0, 1]))
    with pytest.raises(TandemError, match="differ in length"):
        Pairs.open(tmp_path)


def test_a_directory_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="no token shards"):
        Pairs.open(tmp_path / "nowhere")
