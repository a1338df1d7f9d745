"""Which sentence pairs each step learns from: a pure function of (seed, step).

The pairs are sorted by length once and cut into micro-batches that fit the token budget. An epoch shuffles the
pairs among those of equal lengths, which leaves every cut where it is, and the order of the micro-batches. So
all epochs have the same number of micro-batches, step s is found without walking the steps before it, and every
process agrees on all of it without a word being exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.order import random_order
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.shards import Pairs
from tandem.corpus.tokenizer import BOS, EOS, PAD
from tandem.errors import TandemError

IntArray = npt.NDArray[np.int64]
# Tell the random orders of an epoch apart.
MICRO_BATCHES, CELLS = 0, 1


@dataclass(frozen=True)
class MicroBatch:
    """The pairs of one forward and backward pass; `number` is its place in the step."""

    number: int
    rows: IntArray
    target_tokens: int


@dataclass(frozen=True)
class GlobalBatch:
    """Everything that one step learns from, wherever the micro-batches are worked on."""

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
        """Target tokens of all that was dealt to the processes of this one's host."""
        shares = (self.share(rank, world.size) for rank in world.hosts[world.host])
        return sum(micro_batch.target_tokens for share in shares for micro_batch in share)


class LengthOrder:
    """The pairs that fit, sorted by length and cut into micro-batches within the token budget.

    A cell is a set of pairs with the same source and the same target length. Target length is the outer key;
    source length runs up in even rows and down in odd ones, so that neighbouring cells stay alike in both.
    """

    def __init__(self, pairs: Pairs, tokens: int, max_length: int) -> None:
        # EOS adds one position on either side.
        source, target = (np.asarray(n, dtype=np.int64) + 1 for n in (pairs.source_lengths, pairs.target_lengths))
        fitting = np.flatnonzero((source <= max_length) & (target <= max_length))
        if not len(fitting):
            raise TandemError(f"model.max_length={max_length}: no sentence pair is that short; raise it")
        self.left_out = len(pairs) - len(fitting)
        source, target = source[fitting], target[fitting]
        key = target * (2 * max_length + 2) + np.where(target % 2 == 0, source, 2 * max_length - source)
        order = np.argsort(key, kind="stable")
        self.rows: IntArray = fitting[order]
        self.sources, self.targets = source[order], target[order]
        _, self.cell_starts = np.unique(key[order], return_index=True)
        self.cell_ends = np.append(self.cell_starts[1:], len(order))
        self.cuts = self._cut(tokens)

    def _cut(self, tokens: int) -> IntArray:
        """Greedy cuts: a micro-batch takes pairs while its longer side, padded, stays within the budget."""
        cuts, start, longest = [0], 0, 0
        for begin, end in zip(self.cell_starts.tolist(), self.cell_ends.tolist(), strict=True):
            length = max(int(self.sources[begin]), int(self.targets[begin]))
            longest = max(longest, length)
            if begin > start and begin - start >= tokens // longest:
                # What was collected so far leaves no room at this cell's length.
                cuts.append(start := begin)
                longest = length
            while end - start > (capacity := max(tokens // longest, 1)):
                cuts.append(start := start + capacity)
                longest = length
        return np.array([*cuts, len(self.rows)])

    def __len__(self) -> int:
        """Micro-batches in an epoch."""
        return len(self.cuts) - 1

    def positions(self, index: int) -> slice:
        """Where in the length order micro-batch `index` lies."""
        return slice(int(self.cuts[index]), int(self.cuts[index + 1]))

    def shuffled_rows(self, index: int, seed: int, epoch: int) -> IntArray:
        """The pairs of micro-batch `index` in this epoch, after the shuffle within each cell it touches."""
        span = self.positions(index)
        first = int(np.searchsorted(self.cell_starts, span.start, side="right")) - 1
        last = int(np.searchsorted(self.cell_starts, span.stop, side="left"))
        shuffled = []
        for cell in range(first, last):
            begin, end = int(self.cell_starts[cell]), int(self.cell_ends[cell])
            rows = self.rows[begin:end][random_order(end - begin, seed, epoch, CELLS, cell)]
            shuffled.append(rows[max(span.start - begin, 0) : span.stop - begin])
        return np.concatenate(shuffled)

    def padding_share(self) -> float:
        """Share of the positions on both sides together that hold no token."""
        real = padded = 0
        for index in range(len(self)):
            for lengths in (self.sources[self.positions(index)], self.targets[self.positions(index)]):
                real += int(lengths.sum())
                padded += int(lengths.max()) * len(lengths)
        return 1 - real / padded


class Batches:
    """The training batches of a run."""

    def __init__(self, pairs: Pairs, *, tokens: int, micro_batches: int, max_length: int, seed: int) -> None:
        self.pairs = pairs
        self.order = LengthOrder(pairs, tokens, max_length)
        self.micro_batches = micro_batches
        self.seed = seed
        # Training asks for neighbouring steps: the two newest epochs are all it ever needs again.
        self._epoch_order = lru_cache(maxsize=2)(self._shuffled_micro_batches)

    @classmethod
    def of_run(cls, config: Config, corpus: PreparedCorpus) -> Batches:
        """The batches that a run's settings make of its corpus."""
        return cls(
            corpus.pairs("train"),
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

    def at(self, step: int) -> GlobalBatch:
        """The global batch of a step; steps count from 1."""
        first = (step - 1) * self.micro_batches
        return GlobalBatch(step, [self._micro_batch(first, number) for number in range(self.micro_batches)])

    def _micro_batch(self, first: int, number: int) -> MicroBatch:
        epoch, place = divmod(first + number, len(self.order))
        index = int(self._epoch_order(epoch)[place])
        return MicroBatch(
            number,
            self.order.shuffled_rows(index, self.seed, epoch),
            # A shuffle within cells leaves the lengths in place.
            int(self.order.targets[self.order.positions(index)].sum()),
        )

    def tensors(self, micro_batch: MicroBatch, device: torch.device) -> tuple[Tensor, Tensor]:
        """The padded ids of a micro-batch: source (B, S) and target (B, T)."""
        return tensors(self.pairs, micro_batch.rows, device)


def tensors(pairs: Pairs, rows: Sequence[int] | IntArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Padded ids of some pairs: sources end with EOS, targets start with BOS and end with EOS."""
    source = _padded([pairs.source(int(row)) for row in rows], first=[])
    target = _padded([pairs.target(int(row)) for row in rows], first=[BOS])
    return source.to(device, non_blocking=True), target.to(device, non_blocking=True)


def _padded(sentences: Sequence[npt.NDArray[np.integer]], first: list[int]) -> Tensor:
    """One row a sentence: `first`, its ids, EOS, and PAD to the end."""
    ids = np.full((len(sentences), len(first) + max(map(len, sentences)) + 1), PAD, dtype=np.int64)
    ids[:, : len(first)] = first
    for row, sentence in zip(ids, sentences, strict=True):
        end = len(first) + len(sentence)
        row[len(first) : end] = sentence
        row[end] = EOS
    return torch.from_numpy(ids)


def random_seed(seed: int, step: int, micro_batch: int) -> int:
    """The seed of dropout for one micro-batch: whoever computes it, and whenever, drops the same."""
    return int(np.random.SeedSequence([seed, step, micro_batch]).generate_state(1, np.uint64)[0])


def check_everyone_has_work(config: Config, world: World) -> None:
    """Refuse a step of fewer micro-batches than processes."""
    batch = config.batch
    if batch.micro_batches < world.size:
        tokens = batch.tokens * batch.micro_batches // world.size
        raise world.refusal(
            f"batch.micro_batches: {batch.micro_batches} cannot keep {world.size} processes busy; "
            f"batch.micro_batches={world.size} batch.tokens={tokens} makes steps of about the same size"
        )
