"""Which sentence pairs each step learns from: a pure function of (seed, step).

The pairs are sorted by length once and cut into micro-batches that fit the token budget. An epoch shuffles pairs of
equal lengths, which leaves every cut where it is, and the order of the micro-batches. So all epochs have the same
number of micro-batches, every step can be computed by itself, and processes agree on it without any message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.random_order import random_order, stretch_of_random_order
from tandem.corpus.shards import EncodedPairs, EncodedSide
from tandem.errors import TandemError
from tandem.model.batch import PackedBatch
from tandem.training.faults.divergence import Skipped, batch_number
from tandem.vocabulary import BOS, EOS, PAD

IntArray = npt.NDArray[np.int64]
# Tell the random orders of an epoch apart.
MICRO_BATCHES, CELLS = 0, 1


@dataclass(frozen=True)
class MicroBatch:
    """The pairs of one forward and backward pass; `number` is its place in the step."""

    number: int
    rows: IntArray
    target_tokens: int
    part: int = 0
    """Number of this part, where a micro-batch is split for want of memory."""

    def split(self, parts: int) -> list[MicroBatch]:
        """The same pairs in so many parts, at most as many as there are pairs."""
        if parts == 1:
            return [self]
        pieces = np.array_split(self.rows, min(parts, len(self.rows)))
        return [replace(self, rows=rows, part=part) for part, rows in enumerate(pieces)]


@dataclass(frozen=True)
class GlobalBatch:
    """The micro-batches of one step, of all processes together."""

    step: int
    micro_batches: Sequence[MicroBatch]

    @property
    def target_tokens(self) -> int:
        """Target tokens of the whole step, EOS included and padding not: what gradients are divided by."""
        return sum(micro_batch.target_tokens for micro_batch in self.micro_batches)

    def share(self, rank: int, world_size: int) -> Sequence[MicroBatch]:
        """The micro-batches dealt to one process."""
        return self.micro_batches[rank::world_size]

    def host_tokens(self, world: World) -> int:
        """Target tokens of the micro-batches dealt to all processes of this host."""
        shares = (self.share(rank, world.size) for rank in world.hosts[world.host])
        return sum(micro_batch.target_tokens for share in shares for micro_batch in share)


class LengthOrder:
    """The pairs that fit, sorted by length and cut into micro-batches within the token budget.

    A cell is a set of pairs with the same source and the same target length. Everything here is worked out from the
    corpus' cells: nothing has the size of the corpus.
    """

    def __init__(self, pairs: EncodedPairs, tokens: int, max_length: int) -> None:
        sources, targets, sizes = pairs.cells.T
        # EOS adds one position on either side.
        fitting = np.flatnonzero(np.maximum(sources, targets) + 1 <= max_length)
        if not len(fitting):
            raise TandemError(f"model.max_length={max_length}: no sentence pair is that short; raise it")
        self._pairs = pairs
        self._stored: IntArray = (np.cumsum(sizes) - sizes)[fitting]
        """Where each cell begins in the corpus' order, which has the pairs that do not fit, too."""
        self.sources: IntArray = sources[fitting] + 1
        """Positions that a source of each cell takes."""
        self.targets: IntArray = targets[fitting] + 1
        """Positions that a target of each cell takes."""
        self.sizes: IntArray = sizes[fitting]
        """Pairs in each cell."""
        self._starts: IntArray = np.cumsum(self.sizes) - self.sizes
        self.kept = int(self.sizes.sum())
        self.left_out = len(pairs) - self.kept
        self.cuts = self._cut(tokens)
        self._first_cells: IntArray = np.searchsorted(self._starts, self.cuts[:-1], side="right") - 1
        self._end_cells: IntArray = np.searchsorted(self._starts, self.cuts[1:], side="left")
        self.target_tokens = self._count_target_tokens()
        """Target tokens of each micro-batch, EOS included: shuffles within cells leave lengths in place."""

    def _cut(self, tokens: int) -> IntArray:
        """Greedy cuts: a micro-batch takes pairs while its longer side, padded, stays within the budget."""
        cuts, start, longest = [0], 0, 0
        lengths = np.maximum(self.sources, self.targets)
        cells = zip(self._starts.tolist(), (self._starts + self.sizes).tolist(), lengths.tolist(), strict=True)
        for begin, end, length in cells:
            longest = max(longest, length)
            if begin > start and begin - start >= tokens // longest:
                # What was collected so far leaves no room at this cell's length.
                cuts.append(start := begin)
                longest = length
            if end - start > (capacity := max(tokens // longest, 1)):
                cuts.append(start + capacity)
                # From here on there is nothing but this cell.
                longest, capacity = length, max(tokens // length, 1)
                cuts.extend(range(cuts[-1] + capacity, end, capacity))
                start = cuts[-1]
        return np.array([*cuts, self.kept])

    def _count_target_tokens(self) -> IntArray:
        tokens = self.sizes * self.targets
        cells = np.append(self._first_cells, len(self.sizes) - 1)
        before_cuts = (np.cumsum(tokens) - tokens)[cells] + (self.cuts - self._starts[cells]) * self.targets[cells]
        counts: IntArray = np.diff(before_cuts)
        return counts

    def __len__(self) -> int:
        """Micro-batches in an epoch."""
        return len(self.cuts) - 1

    def rows(self, index: int, seed_epoch: tuple[int, int] | None = None) -> IntArray:
        """The pairs of micro-batch `index`: shuffled inside each cell for an epoch, or in the order of the corpus."""
        start, end = self.cuts[index : index + 2].tolist()
        places = []
        for cell in range(self._first_cells.item(index), self._end_cells.item(index)):
            cell_start, size = self._starts.item(cell), self.sizes.item(cell)
            first, last = max(start - cell_start, 0), min(end - cell_start, size)
            if seed_epoch is None:
                inside = np.arange(first, last)
            else:
                inside = stretch_of_random_order(first, last, size, *seed_epoch, CELLS, cell)
            places.append(self._stored[cell] + inside)
        return self._pairs.rows_at(np.concatenate(places))

    def padding_share(self) -> float:
        """Share of the positions on both sides together that hold no token."""
        # reduceat takes what lies between two neighbours of a list; every second gap is between micro-batches.
        bounds = np.stack([self._first_cells, self._end_cells], axis=1).ravel()
        pairs = np.diff(self.cuts)
        real = padded = 0
        for lengths in (self.sources, self.targets):
            real += int(lengths @ self.sizes)
            # A last bound may be the number of cells, where reduceat wants to find something.
            padded += int(np.maximum.reduceat(np.append(lengths, 0), bounds)[::2] @ pairs)
        return 1 - real / padded


class Batches:
    """The training batches of a run."""

    def __init__(self, pairs: EncodedPairs, *, tokens: int, micro_batches: int, max_length: int, seed: int) -> None:
        self.pairs, self.tokens = pairs, tokens
        self.order = LengthOrder(pairs, tokens, max_length)
        self.micro_batches = micro_batches
        self.seed = seed
        self.skipped: Skipped = ()
        """Windows of batches that no step learns from, because training has blown up on them."""
        # Training asks for neighbouring steps, which lie in two epochs at most.
        self._epoch_order = lru_cache(maxsize=2)(self._shuffled_micro_batches)

    @classmethod
    def of_run(cls, config: Config, pairs: EncodedPairs) -> Batches:
        """The batches that a run's settings make of its training pairs."""
        assert config.batch.tokens != "auto", "resolved at the start"
        return cls(
            pairs,
            tokens=config.batch.tokens,
            micro_batches=config.batch.micro_batches,
            max_length=config.model.max_length,
            seed=config.train.seed,
        )

    def _shuffled_micro_batches(self, epoch: int) -> IntArray:
        return random_order(len(self.order), self.seed, epoch, MICRO_BATCHES)

    @property
    def steps_per_epoch(self) -> float:
        """Steps in which every pair is used once; a step may end one epoch and begin the next."""
        return len(self.order) / self.micro_batches

    def epoch_after(self, step: int) -> float:
        """How many times the pairs have been gone through after a step."""
        return batch_number(step, self.skipped) / self.steps_per_epoch

    def at(self, step: int) -> GlobalBatch:
        """The global batch of a step; steps count from 1."""
        first = (batch_number(step, self.skipped) - 1) * self.micro_batches
        return GlobalBatch(step, [self._micro_batch(first, number) for number in range(self.micro_batches)])

    def _micro_batch(self, first: int, number: int) -> MicroBatch:
        epoch, place = divmod(first + number, len(self.order))
        index = int(self._epoch_order(epoch)[place])
        rows = self.order.rows(index, (self.seed, epoch))
        return MicroBatch(number, rows, int(self.order.target_tokens[index]))

    def packed(self, micro_batch: MicroBatch, *, pinned: bool) -> PackedBatch:
        """The padded ids of a micro-batch, on the host."""
        return packed(self.pairs, micro_batch.rows, pinned=pinned)


def packed(pairs: EncodedPairs, rows: Sequence[int] | IntArray, *, pinned: bool) -> PackedBatch:
    """Padded ids of some pairs: sources end with EOS, targets start with BOS and end with EOS."""
    sources, targets = pairs.read(rows)
    return PackedBatch.pack(_padded(sources, first=[]), _padded(targets, first=[BOS]), pinned=pinned)


def _padded(sentences: EncodedSide, first: list[int]) -> IntArray:
    """One row a sentence: `first`, its ids, EOS, and PAD to the end."""
    lengths, longest = sentences.lengths, int(sentences.lengths.max())
    ids = np.full((len(lengths), len(first) + longest + 1), PAD, dtype=np.int64)
    ids[:, : len(first)] = first
    rest = ids[:, len(first) :]
    rest[np.arange(longest + 1) < lengths[:, None]] = sentences.ids
    rest[np.arange(len(lengths)), lengths] = EOS
    return ids


def random_seed(seed: int, step: int, micro_batch: int, part: int = 0) -> int:
    """The seed of dropout for one micro-batch, whichever process computes it and whenever."""
    place = [seed, step, micro_batch, *([part] if part else [])]
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])


def check_everyone_has_work(config: Config, world: World) -> None:
    """Refuse a step of fewer micro-batches than processes."""
    batch = config.batch
    if batch.tokens != "auto" and batch.micro_batches < world.size:
        tokens = batch.tokens * batch.micro_batches // world.size
        raise world.shared_error(
            f"batch.micro_batches: {batch.micro_batches} cannot keep {world.size} processes busy; "
            f"batch.micro_batches={world.size} batch.tokens={tokens} makes steps of about the same size"
        )
