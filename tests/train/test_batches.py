"""Batches: a pure function of (seed, step), every pair once an epoch, never above the token budget."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tandem.config import load
from tandem.corpus.prepare import prepare
from tandem.corpus.shards import Pairs, write_pairs
from tandem.corpus.tokenizer import BOS, EOS, PAD
from tandem.errors import TandemError
from tandem.train.batches import Batches, GlobalBatch, LengthOrder, MicroBatch, random_seed, tensors

CPU = torch.device("cpu")
MULTI30K = Path(__file__).parents[3] / "shared" / "corpora" / "multi30k"

Lengths = list[tuple[int, int]]


class MadePairs:
    """Stands in for `Pairs` where writing files would be slow: pair i has ids that follow from i."""

    def __init__(self, lengths: Lengths) -> None:
        self.source_lengths = np.array([source for source, _ in lengths], dtype=np.int32)
        self.target_lengths = np.array([target for _, target in lengths], dtype=np.int32)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, index: int) -> npt.NDArray[np.uint16]:
        return made_ids(index, int(self.source_lengths[index]))

    def target(self, index: int) -> npt.NDArray[np.uint16]:
        return made_ids(index + 1000, int(self.target_lengths[index]))


def made_ids(index: int, length: int) -> npt.NDArray[np.uint16]:
    return (4 + index + np.arange(length)).astype(np.uint16)


def random_lengths(pairs: int, longest: int = 20, seed: int = 0) -> Lengths:
    """Lengths of many pairs: the two sides are alike, as in real text, and some lengths are common."""
    random = np.random.default_rng(seed)
    source = random.integers(0, longest + 1, pairs)
    target = np.clip(source + random.integers(-3, 4, pairs), 0, longest)
    return list(zip(source.tolist(), target.tolist(), strict=True))


def make(lengths: Lengths, *, tokens: int = 64, micro_batches: int = 3, max_length: int = 32, seed: int = 1) -> Batches:
    pairs = MadePairs(lengths)
    return Batches(pairs, tokens=tokens, micro_batches=micro_batches, max_length=max_length, seed=seed)  # type: ignore[arg-type]


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
    monkeypatch.setattr(
        Batches, "_shuffled_micro_batches", lambda self, epoch: shuffled.append(epoch) or original(self, epoch)
    )
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
    batches = make(random_lengths(200, longest=6), tokens=40)
    order = batches.order
    lengths = np.stack([batches.pairs.source_lengths, batches.pairs.target_lengths], axis=1)
    for index, number in itertools.product(range(len(order)), (0, 1, 7)):
        moved = order.shuffled_rows(index, seed=1, epoch=number)
        assert lengths[moved].tolist() == lengths[order.rows[order.positions(index)]].tolist()


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


@settings(deadline=None, derandomize=True, max_examples=150)
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
        source_BS, target_BT = batches.tensors(part, CPU)
        labels_BT = target_BT[:, 1:]
        assert source_BS.numel() <= tokens
        assert labels_BT.numel() <= tokens
        assert part.target_tokens == int((labels_BT != PAD).sum())
        for ids in (source_BS, labels_BT):
            real += int((ids != PAD).sum())
            positions += ids.numel()
    assert batches.order.padding_share() == pytest.approx(1 - real / positions, abs=1e-12)


@settings(deadline=None, derandomize=True)
@given(problems())
def test_a_micro_batch_ends_only_where_the_next_pair_does_not_fit(problem: tuple[Lengths, int, int, int]) -> None:
    lengths, tokens, max_length, _ = problem
    pairs = MadePairs([(0, 0), *lengths])  # at least one pair fits
    order = LengthOrder(pairs, tokens, max_length)  # type: ignore[arg-type]
    longer = np.maximum(order.sources, order.targets)
    for index in range(len(order) - 1):
        span = order.positions(index)
        with_next = longer[span.start : span.stop + 1]
        assert int(with_next.max()) * len(with_next) > tokens


# --- tensors, on real shards


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    write_pairs(tmp_path, [([5, 6, 7], [8]), ([9], [10, 11]), ([], []), ([4] * 9, [4])], vocab_size=300)
    return Pairs.open(tmp_path)


def test_tensors_by_hand(pairs: Pairs) -> None:
    source_BS, target_BT = tensors(pairs, [1, 0, 2], CPU)
    assert source_BS.tolist() == [[9, EOS, PAD, PAD], [5, 6, 7, EOS], [EOS, PAD, PAD, PAD]]
    assert target_BT.tolist() == [[BOS, 10, 11, EOS], [BOS, 8, EOS, PAD], [BOS, EOS, PAD, PAD]]
    assert source_BS.dtype == target_BT.dtype == torch.int64


def test_pairs_that_are_too_long_are_left_out_and_counted(pairs: Pairs) -> None:
    batches = Batches(pairs, tokens=16, micro_batches=1, max_length=4, seed=1)
    assert batches.order.left_out == 1
    assert sorted(row for part in epoch(batches, 0) for row in part.rows.tolist()) == [0, 1, 2]
    # EOS counts: three pieces need four positions.
    assert Batches(pairs, tokens=16, micro_batches=1, max_length=3, seed=1).order.left_out == 2
    assert Batches(pairs, tokens=16, micro_batches=1, max_length=10, seed=1).order.left_out == 0


def test_real_shards_give_the_batches_of_the_stand_in(tmp_path: Path) -> None:
    lengths = random_lengths(90)
    made = MadePairs(lengths)
    written = [(made.source(i).tolist(), made.target(i).tolist()) for i in range(len(made))]
    write_pairs(tmp_path, written, vocab_size=2000, pairs_per_shard=40)
    real = Batches(Pairs.open(tmp_path), tokens=64, micro_batches=3, max_length=32, seed=1)
    stand_in = make(lengths)
    for step in (1, 2, 50):
        assert facts(real.at(step)) == facts(stand_in.at(step))
        for part in real.at(step).micro_batches:
            for left, right in zip(real.tensors(part, CPU), stand_in.tensors(part, CPU), strict=True):
                assert torch.equal(left, right)


@pytest.mark.slow
@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"needs the Multi30k corpus in {MULTI30K}")
def test_multi30k_is_padded_by_less_than_five_percent(tmp_path: Path) -> None:
    config = load("small")
    corpus = prepare(
        train=(MULTI30K / "train.en", MULTI30K / "train.de"),
        dev=(MULTI30K / "val.en", MULTI30K / "val.de"),
        out=tmp_path / "corpus",
        settings=config.corpus,
    )
    order = LengthOrder(corpus.pairs("train"), config.batch.tokens, config.model.max_length)
    assert len(order.rows) > 28_000
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
