"""How fast this process multiplies matrices and reads sentences, and sentences for when there are none to read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.shards import EncodedPairs, write_pairs
from tandem.doctor.card.prediction import likely_vocabulary
from tandem.monitor.device_clock import synchronize
from tandem.training.batches import Batches
from tandem.vocabulary import EOS

# Larger files than this many seconds of reading are read in part.
READING_SECONDS, READ_AT_ONCE = 1.0, 1 << 20
BATCHES_SECONDS = 0.5
# Sentences as in a corpus of European news: half of them have fewer pieces than this, and one in six twice as many.
MIDDLE_LENGTH, LENGTH_SPREAD = 22, 0.65
TARGET_SPREAD = 0.15
# A few dozen steps must not take the same micro-batches again and again.
MADE_UP_STEPS = 32


@dataclass(frozen=True)
class Reading:
    """How fast the corpus comes from the disk."""

    mb_per_second: float
    """Rate of reading shards one after the other, the system having been asked to forget them."""
    step_mb: float
    """What one step of all processes reads."""
    batches_per_second: float
    """Shares of a step that one process can put together, if it does nothing else."""


@dataclass(frozen=True)
class Sentences:
    """What the steps are taken with: a corpus, or made-up pairs."""

    pairs: EncodedPairs
    vocabulary: int
    corpus: PreparedCorpus | None
    """None if they are made up."""

    def batches(self, config: Config) -> Batches:
        return Batches.of_run(config, self.pairs)


@contextmanager
def sentences(config: Config, corpus_directory: Path | None) -> Iterator[Sentences]:
    """The corpus, or random sentences of usual lengths, which are gone after the block."""
    if corpus_directory is not None:
        corpus = PreparedCorpus.open(corpus_directory)
        yield Sentences(corpus.pairs("train"), corpus.tokenizer.vocab_size, corpus)
        return
    vocabulary = likely_vocabulary(config, None)
    with TemporaryDirectory(prefix="tandem-doctor-") as directory:
        write_pairs(Path(directory), _made_up(config, vocabulary), vocab_size=vocabulary)
        yield Sentences(EncodedPairs(Path(directory)), vocabulary, None)


def _made_up(config: Config, vocabulary: int) -> Iterator[tuple[list[int], list[int]]]:
    random, batch = np.random.default_rng(config.train.seed), config.batch
    # EOS needs a place, too.
    longest = config.model.max_length - 1
    left = MADE_UP_STEPS * (batch.step_tokens if batch.tokens == "auto" else batch.tokens * batch.micro_batches)
    while left > 0:
        length = random.lognormal(np.log(MIDDLE_LENGTH), LENGTH_SPREAD)
        source, target = (
            random.integers(EOS + 1, vocabulary, min(max(int(wished), 1), longest)).tolist()
            for wished in (length, length * random.normal(1, TARGET_SPREAD))
        )
        left -= max(len(source), len(target)) + 1
        yield source, target


def matrix_flops(device: torch.device, dtype: torch.dtype, width: int, seconds: float = 0.0) -> float:
    """Operations a second in products of square matrices, for so many seconds after one that warms up."""
    left, right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
    left @ right
    synchronize(device)
    count, taken, start = 0, 0.0, time.perf_counter()
    while count == 0 or taken < seconds:
        left @ right
        synchronize(device)
        count, taken = count + 1, time.perf_counter() - start
    return 2 * width**3 * count / taken


def reading_speed(corpus: PreparedCorpus, batches: Batches, world: World) -> Reading:
    """Read the training shards from the start for a while, then put shares of steps together; the slowest process."""
    shards = sorted((corpus.directory / "train").glob("*.npy"))
    bytes_a_pair = sum(path.stat().st_size for path in shards) / len(batches.pairs)
    pairs_a_step = sum(len(micro_batch.rows) for micro_batch in batches.at(1).micro_batches)
    rate, seconds = -world.largest(-_bytes_per_second(shards)), world.largest(_batch_seconds(batches, world))
    return Reading(rate / 1e6, pairs_a_step * bytes_a_pair / 1e6, 1 / seconds)


def _bytes_per_second(shards: Sequence[Path]) -> float:
    """Rate of reading files that were dropped from memory, where the system does that."""
    size, seconds = 0, 0.0
    for path in shards:
        with path.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter() - seconds
            while seconds < READING_SECONDS and (read := len(file.read(READ_AT_ONCE))):
                size, seconds = size + read, time.perf_counter() - start
    return size / seconds


def _batch_seconds(batches: Batches, world: World) -> float:
    """Seconds for finding and padding this process's share of a step."""
    batches.at(1)
    step, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < BATCHES_SECONDS:
        step += 1
        for micro_batch in batches.at(step).share(world.rank, world.size):
            batches.packed(micro_batch, pinned=False).to(world.device)
    return taken / step
