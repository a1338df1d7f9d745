"""How fast this process multiplies matrices and reads sentences, and sentences for when there are none to read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from tandem.cluster.instants import finish
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.shards import Pairs, write_pairs
from tandem.corpus.tokenizer import EOS
from tandem.doctor.card_prediction import likely_vocabulary
from tandem.train.batches import Batches
from tandem.train.state import PRECISIONS

# Large enough that a multiplication is all arithmetic, small enough for a few of them in the time.
MATRIX_WIDTH = {"cpu": 1024, "cuda": 8192}
MATRIX_SECONDS = 0.5
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
    """Of its shards, one after the other; the system was asked to forget them first."""
    step_mb: float
    """What one step of all processes reads."""
    batches_per_second: float
    """Shares of a step that this process can put together, if it does nothing else."""


@dataclass(frozen=True)
class Sentences:
    """What the steps are taken with: a corpus, or made-up pairs."""

    pairs: Pairs
    vocabulary: int
    corpus: PreparedCorpus | None
    """None: they are made up."""

    def batches(self, config: Config) -> Batches:
        """The batches that the settings make of them."""
        if self.corpus is not None:
            return Batches.of_run(config, self.corpus)
        assert config.batch.tokens != "auto", "batches are made from settled choices"
        return Batches(
            self.pairs,
            tokens=config.batch.tokens,
            micro_batches=config.batch.micro_batches,
            max_length=config.model.max_length,
            seed=config.train.seed,
        )


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
        yield Sentences(Pairs.open(Path(directory)), vocabulary, None)


def _made_up(config: Config, vocabulary: int) -> Iterator[tuple[list[int], list[int]]]:
    random, batch = np.random.default_rng(config.train.seed), config.batch
    # EOS needs a place, too.
    longest = config.model.max_length - 1
    left = MADE_UP_STEPS * (batch.step_tokens if batch.tokens == "auto" else batch.tokens * batch.micro_batches)
    while left > 0:
        length = random.lognormal(np.log(MIDDLE_LENGTH), LENGTH_SPREAD)
        pair = []
        for wished in (length, length * random.normal(1, TARGET_SPREAD)):
            pair.append(random.integers(EOS + 1, vocabulary, min(max(int(wished), 1), longest)).tolist())
        left -= max(map(len, pair)) + 1
        yield pair[0], pair[1]


def matrix_gflops(world: World, precision: str) -> float:
    """Billions of multiplications and additions a second in square matrices, in the precision of the training."""
    device, width = world.device, MATRIX_WIDTH[world.device.type]
    left, right = (torch.randn(width, width, device=device, dtype=PRECISIONS[precision]) for _ in range(2))
    left @ right
    finish(device)
    count, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < MATRIX_SECONDS:
        left @ right
        finish(device)
        count += 1
    return 2 * width**3 * count / taken / 1e9


def reading_speed(corpus: PreparedCorpus, batches: Batches, world: World) -> Reading:
    """Read the training shards from the start for a while, then put shares of steps together."""
    size, seconds = 0, 0.0
    for path in sorted((corpus.directory / "train").glob("*.npy")):
        taken = _read_file(path, READING_SECONDS - seconds)
        size, seconds = size + taken[0], seconds + taken[1]
    bytes_a_pair = sum(path.stat().st_size for path in (corpus.directory / "train").glob("*.npy")) / len(batches.pairs)
    pairs_a_step = sum(len(micro_batch.rows) for micro_batch in batches.at(1).micro_batches)
    return Reading(size / seconds / 1e6, pairs_a_step * bytes_a_pair / 1e6, 1 / _batch_seconds(batches, world))


def _read_file(path: Path, seconds: float) -> tuple[int, float]:
    """Bytes read and seconds taken, the file having been dropped from memory where the system does that."""
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        size, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds and (read := len(file.read(READ_AT_ONCE))):
            size += read
        return size, time.perf_counter() - start


def _batch_seconds(batches: Batches, world: World) -> float:
    """To find and pad this process's share of a step."""
    batches.at(1)
    step, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < BATCHES_SECONDS:
        step += 1
        for micro_batch in batches.at(step).share(world.rank, world.size):
            batches.packed(micro_batch, pinned=False).to(world.device)
    return taken / step
