"""Batches: a pure function of (seed, step), every pair once an epoch, never above the token budget."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.random_order import random_order
from tandem.corpus.shards import EncodedPairs, write_pairs
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tandem.model.batch import PackedBatch
from tandem.training.batches import (
    CELLS,
    MICRO_BATCHES,
    Batches,
    GlobalBatch,
    LengthOrder,
    MicroBatch,
    packed,
    random_seed,
)
from tandem.vocabulary import BOS, EOS, PAD
from tests.places import CORPORA

CPU = torch.device("cpu")
# Hundreds of small corpora, each brought to the disk, would take a minute where the disk is busy.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
MULTI30K = CORPORA / "multi30k"

Lengths = list[tuple[int, int]]


def made_ids(index: int, length: int) -> list[int]:
    return list(range(4 + index, 4 + index + length))


def made_pairs(lengths: Lengths, pairs_per_shard: int = 40) -> EncodedPairs:
    """Shards of pairs that have these lengths; pair i has ids that follow from i."""
    written = [(made_ids(i, source), made_ids(i + 1000, target)) for i, (source, target) in enumerate(lengths)]
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        write_pairs(Path(directory), written, vocab_size=20_000, pairs_per_shard=pairs_per_shard)
        return EncodedPairs(Path(directory))  # maps outlive the names of their files


def random_lengths(pairs: int, longest: int = 20, seed: int = 0) -> Lengths:
    """Lengths of many pairs: the two sides are alike, as in real text, and some lengths are common."""
    random = np.random.default_rng(seed)
    source = random.integers(0, longest + 1, pairs)
    target = np.clip(source + random.integers(-3, 4, pairs), 0, longest)
    return list(zip(source.tolist(), target.tolist(), strict=True))


def make(lengths: Lengths, *, tokens: int = 64, micro_batches: int = 3, max_length: int = 32, seed: int = 1) -> Batches:
    pairs = made_pairs(lengths)
    return Batches(pairs, tokens=tokens, micro_batches=micro_batches, max_length=max_length, seed=seed)


def facts(batch: GlobalBatch) -> list[tuple[int, list[int], int]]:
    """A global batch as plain values that can be compared."""
    return [(part.number, part.rows.tolist(), part.target_tokens) for part in batch.micro_batches]


def epoch(batches: Batches, number: int) -> list[MicroBatch]:
    """The micro-batches of one epoch in the order in which the steps bring them."""
    count, a_step = len(batches.order), batches.micro_batches
    steps = range(number * count // a_step + 1, ((number + 1) * count - 1) // a_step + 2)
    stream = [part for step in steps for part in batches.at(step).micro_batches]
    skipped = number * count - (steps[0] - 1) * a_step
    return stream[skipped : skipped + count]


# --- purity


def test_a_step_is_the_same_in_any_order_of_asking() -> None:
    lengths = random_lengths(100)
    walked = make(lengths)
    in_order = {step: facts(walked.at(step)) for step in range(1, 301)}
    asked = make(lengths)
    for step in np.random.default_rng(0).permutation(range(1, 301)).tolist():
        assert facts(asked.at(step)) == in_order[step]
    assert facts(make(lengths).at(300)) == in_order[300]


def test_a_far_step_is_found_without_walking_there(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = random_lengths(100)
    walked = make(lengths)
    for step in range(1, 100_001, 37):
        walked.at(step)
    for step in range(99_990, 100_001):
        expected = facts(walked.at(step))
    shuffled: list[int] = []
    original = Batches._shuffled_micro_batches

    def counted(self: Batches, epoch: int) -> np.ndarray:
        shuffled.append(epoch)
        return original(self, epoch)

    monkeypatch.setattr(Batches, "_shuffled_micro_batches", counted)
    assert facts(make(lengths).at(100_000)) == expected
    assert len(shuffled) <= 2, "a step of three micro-batches lies in two epochs at most"


def test_steps_join_without_gaps_however_many_micro_batches_they_have() -> None:
    """The stream of micro-batches is the same; a step only says how many of them are taken at once."""
    lengths = random_lengths(60)

    def stream(micro_batches: int) -> list[list[int]]:
        batches = make(lengths, micro_batches=micro_batches)
        return [part.rows.tolist() for step in range(1, 121) for part in batches.at(step).micro_batches]

    one = stream(1)
    assert stream(2)[:120] == one
    assert stream(7)[:120] == one


def test_the_seed_decides() -> None:
    lengths = random_lengths(100)
    assert facts(make(lengths, seed=1).at(5)) != facts(make(lengths, seed=2).at(5))


def test_numbers_count_within_the_step() -> None:
    batches = make(random_lengths(100), micro_batches=4)
    for step in (1, 2, 99):
        batch = batches.at(step)
        assert batch.step == step
        assert [part.number for part in batch.micro_batches] == [0, 1, 2, 3]


# --- epochs


@pytest.mark.parametrize("micro_batches", [1, 3, 4, 50])
def test_every_pair_once_an_epoch(micro_batches: int) -> None:
    batches = make(random_lengths(150), micro_batches=micro_batches)
    for number in (0, 1, 2, 1234):
        rows = np.concatenate([part.rows for part in epoch(batches, number)])
        assert sorted(rows.tolist()) == list(range(150))


def test_steps_per_epoch() -> None:
    # 10 pairs of 4 tokens a side, 2 to a micro-batch: 5 micro-batches.
    batches = make([(3, 3)] * 10, tokens=8, micro_batches=2)
    assert len(batches.order) == 5
    assert batches.steps_per_epoch == 2.5


def test_epochs_shuffle_the_micro_batches_and_the_pairs_in_them() -> None:
    batches = make(random_lengths(300, longest=6), tokens=40)
    first, second = epoch(batches, 0), epoch(batches, 1)

    def shapes(parts: list[MicroBatch]) -> list[tuple[int, int]]:
        return [(len(part.rows), part.target_tokens) for part in parts]

    assert shapes(first) != shapes(second), "the order of the micro-batches"
    assert sorted(shapes(first)) == sorted(shapes(second)), "all epochs have the same cuts"
    together = [{frozenset(part.rows.tolist()) for part in parts} for parts in (first, second)]
    assert len(together[0] & together[1]) < len(first) / 4, "which pairs meet in a micro-batch"


def test_pairs_move_only_among_their_equals() -> None:
    lengths = random_lengths(200, longest=6)
    order = make(lengths, tokens=40).order
    for index, number in itertools.product(range(len(order)), (0, 1, 7)):
        moved = order.rows(index, (1, number))
        assert [lengths[row] for row in moved] == [lengths[row] for row in order.rows(index)]


# --- many processes


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("micro_batches", [1, 4, 8])
def test_shares_partition_the_step(world_size: int, micro_batches: int) -> None:
    batch = make(random_lengths(100), micro_batches=micro_batches).at(3)
    shares = [batch.share(rank, world_size) for rank in range(world_size)]
    assert sorted(part.number for share in shares for part in share) == list(range(micro_batches))
    assert sum(part.target_tokens for share in shares for part in share) == batch.target_tokens
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1, "nobody has more than one micro-batch more than anybody else"


# --- one property over all kinds of lengths


@st.composite
def problems(draw: st.DrawFn) -> tuple[Lengths, int, int, int]:
    max_length = draw(st.integers(2, 24))
    length = st.integers(0, draw(st.integers(1, 30)))
    lengths = draw(st.lists(st.tuples(length, length), min_size=1, max_size=80))
    return lengths, draw(st.integers(max_length, 100)), max_length, draw(st.integers(1, 4))


@settings(max_examples=150)
@given(problems(), st.integers(0, 2**40), st.integers(0, 3))
@example(([(0, 0)], 2, 2, 3), 0, 0)
@example(([(1, 1)] * 50 + [(9, 9)] * 50, 20, 10, 2), 5, 1)
@example(([(9, 1), (1, 9)] * 20, 30, 10, 2), 5, 1)
def test_whatever_the_lengths(problem: tuple[Lengths, int, int, int], seed: int, number: int) -> None:
    lengths, tokens, max_length, micro_batches = problem
    fitting = [i for i, pair in enumerate(lengths) if max(pair) + 1 <= max_length]
    if not fitting:
        with pytest.raises(
            TandemError, match=f"model.max_length={max_length}: no sentence pair is that short; raise it"
        ):
            make(lengths, tokens=tokens, max_length=max_length)
        return
    batches = make(lengths, tokens=tokens, max_length=max_length, micro_batches=micro_batches, seed=seed)
    assert batches.order.left_out == len(lengths) - len(fitting)
    parts = epoch(batches, number)
    assert sorted(row for part in parts for row in part.rows.tolist()) == fitting
    real = positions = 0
    for part in parts:
        source_BS, target_BT = ids_of(batches.packed(part, pinned=False))
        labels_BT = target_BT[:, 1:]
        assert source_BS.numel() <= tokens
        assert labels_BT.numel() <= tokens
        assert part.target_tokens == int((labels_BT != PAD).sum())
        for ids in (source_BS, labels_BT):
            real += int((ids != PAD).sum())
            positions += ids.numel()
    assert batches.order.padding_share() == pytest.approx(1 - real / positions, abs=1e-12)


@given(problems())
def test_a_micro_batch_ends_only_where_the_next_pair_does_not_fit(problem: tuple[Lengths, int, int, int]) -> None:
    lengths, tokens, max_length, _ = problem
    lengths = [(0, 0), *lengths]  # at least one pair fits
    order = LengthOrder(made_pairs(lengths), tokens, max_length)
    for index in range(len(order) - 1):
        with_next = [max(lengths[row]) + 1 for row in (*order.rows(index), order.rows(index + 1)[0])]
        assert max(with_next) * len(with_next) > tokens


# --- the same batches as ever


def straightforward_epoch(lengths: Lengths, tokens: int, max_length: int, seed: int, number: int) -> list[list[int]]:
    """The micro-batches of one epoch, by walking over all pairs."""

    def place(row: int) -> tuple[int, int]:
        source, target = lengths[row]
        return target, source if target % 2 == 1 else -source

    fitting = [row for row, pair in enumerate(lengths) if max(pair) + 1 <= max_length]
    shuffled: list[int] = []
    for cell, (_, group) in enumerate(itertools.groupby(sorted(fitting, key=place), key=place)):
        rows = list(group)
        shuffled += [rows[i] for i in random_order(len(rows), seed, number, CELLS, cell)]
    parts: list[list[int]] = [[]]
    for row in shuffled:
        together = [*parts[-1], row]
        if parts[-1] and len(together) * max(max(lengths[other]) + 1 for other in together) > tokens:
            parts.append([row])
        else:
            parts[-1] = together
    return [parts[i] for i in random_order(len(parts), seed, number, MICRO_BATCHES)]


@given(problems(), st.integers(0, 2**40), st.integers(0, 3))
@example(([(2, 2)] * 70 + [(2, 3), (9, 3)], 25, 8, 2), 5, 1)
def test_batches_are_those_of_a_walk_over_all_pairs(
    problem: tuple[Lengths, int, int, int], seed: int, number: int
) -> None:
    lengths, tokens, max_length, micro_batches = problem
    lengths = [(0, 0), *lengths]
    batches = make(lengths, tokens=tokens, max_length=max_length, micro_batches=micro_batches, seed=seed)
    found = [part.rows.tolist() for part in epoch(batches, number)]
    assert found == straightforward_epoch(lengths, tokens, max_length, seed, number)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, [(0, [21, 51, 46, 76, 16, 52, 22, 57], 19), (1, [48, 18, 78, 73, 43, 13, 68, 38, 8, 33], 40)]),
        (7, [(0, [24, 54], 10), (1, [51, 21, 46, 76, 16, 22, 52, 27], 19)]),
        (1000, [(0, [63, 3, 28, 58, 34, 4, 64, 9], 36), (1, [24, 54], 10)]),
    ],
)
def test_batches_do_not_change_between_versions(step: int, expected: list[tuple[int, list[int], int]]) -> None:
    lengths = [(i * 7 % 6, i * 11 % 5) for i in range(80)]
    assert facts(make(lengths, tokens=40, micro_batches=2, max_length=5).at(step)) == expected


def test_nothing_of_the_size_of_the_corpus_is_held() -> None:
    pairs = made_pairs([(3, 3)] * 5000, pairs_per_shard=5000)
    order = LengthOrder(pairs, tokens=4096, max_length=8)
    arrays = {name: value for name, value in vars(order).items() if isinstance(value, np.ndarray)}
    assert not pairs.order.flags.owndata
    assert len(arrays) > 5
    assert max(map(len, arrays.values())) == len(order) + 1 == 6


# --- tensors, on real shards


def ids_of(batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """The padded sources, and the padded targets with BOS and EOS, put together again from inputs and labels."""
    found = batch.to(CPU)
    inputs_BT = found.target_BT
    labels_BT = torch.full_like(inputs_BT, PAD)
    labels_BT.view(-1)[found.places_N] = found.labels_N
    assert torch.equal(labels_BT[:, :-1], inputs_BT[:, 1:].where(labels_BT[:, :-1] != EOS, torch.tensor(EOS)))
    assert found.source_padded == bool((found.source_BS == PAD).any())
    return found.source_BS, torch.cat([inputs_BT[:, :1], labels_BT], dim=1)


@pytest.fixture
def pairs(tmp_path: Path) -> EncodedPairs:
    write_pairs(tmp_path, [([5, 6, 7], [8]), ([9], [10, 11]), ([], []), ([4] * 9, [4])], vocab_size=300)
    return EncodedPairs(tmp_path)


def test_tensors_by_hand(pairs: EncodedPairs) -> None:
    source_BS, target_BT = ids_of(packed(pairs, [1, 0, 2], pinned=False))
    assert source_BS.tolist() == [[9, EOS, PAD, PAD], [5, 6, 7, EOS], [EOS, PAD, PAD, PAD]]
    assert target_BT.tolist() == [[BOS, 10, 11, EOS], [BOS, 8, EOS, PAD], [BOS, EOS, PAD, PAD]]
    assert source_BS.dtype == target_BT.dtype == torch.int64


def test_pairs_that_are_too_long_are_left_out_and_counted(pairs: EncodedPairs) -> None:
    batches = Batches(pairs, tokens=16, micro_batches=1, max_length=4, seed=1)
    assert batches.order.left_out == 1
    assert sorted(row for part in epoch(batches, 0) for row in part.rows.tolist()) == [0, 1, 2]
    # EOS counts: three pieces need four positions.
    assert Batches(pairs, tokens=16, micro_batches=1, max_length=3, seed=1).order.left_out == 2
    assert Batches(pairs, tokens=16, micro_batches=1, max_length=10, seed=1).order.left_out == 0


def test_tensors_across_shards() -> None:
    lengths = random_lengths(90)
    batches = make(lengths)
    for part in batches.at(1).micro_batches:
        for ids, row in zip(ids_of(batches.packed(part, pinned=False))[1], part.rows.tolist(), strict=True):
            expected = [BOS, *made_ids(row + 1000, lengths[row][1]), EOS]
            assert ids.tolist() == expected + [PAD] * (len(ids) - len(expected))


@pytest.mark.slow
@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"needs the Multi30k corpus in {MULTI30K}")
def test_multi30k_is_padded_by_less_than_five_percent(tmp_path: Path) -> None:
    config = Config.load("small")
    train, dev = ((MULTI30K / f"{stem}.en", MULTI30K / f"{stem}.de") for stem in ("train", "val"))
    corpus = prepare(CorpusTexts([train], dev), tmp_path / "corpus", config.corpus)
    assert config.batch.tokens != "auto"
    order = LengthOrder(corpus.pairs("train"), config.batch.tokens, config.model.max_length)
    assert order.kept > 28_000
    assert order.left_out == 0
    assert order.padding_share() < 0.05


# --- randomness


@pytest.mark.parametrize("runs", [range(12), [2**32 - 1], [2**33], [2**63]])
def test_random_seeds_are_distinct_and_fit_a_generator(runs: Sequence[int]) -> None:
    """Within a run, and between runs whose seeds people would choose."""
    triples = list(itertools.product(runs, [*range(1, 40), 300_000], range(8)))
    seeds = {random_seed(*triple) for triple in triples}
    assert len(seeds) == len(triples)
    for seed in sorted(seeds)[:: len(seeds) // 10]:
        torch.Generator().manual_seed(seed)
    assert max(seeds) > 2**63, "all 64 bits are used"


def test_random_seed_does_not_change_between_versions() -> None:
    """A run resumed under a newer NumPy must drop the same: NumPy promises this stream, and here it is."""
    assert random_seed(1, 1, 0) == 77803131892610477
