"""Opens a corpus of 20 million pairs with at most 1,024 open files, and reads batches from it.

    python -m bench.many_pairs

Writes shards of made-up pairs, as many to a shard as `tandem prepare` puts there, to a temporary directory of about
1.3 GB, removed at the end. Reading is done by a process of its own under `ulimit -n 1024`; it prints the descriptors
and the memory it holds. 100 million pairs would have five times as many files.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from tandem.config import Config
from tandem.corpus.prepare.scan import CHUNK_LINES
from tandem.corpus.shards import EncodedPairs, EncodedSide, write_order, write_shard
from tandem.training.batches import Batches
from tandem.units import duration, size

VOCABULARY = 32_000
DESCRIPTORS = 1024
# Short sentences: what matters here is their number.
SHORTEST, LONGEST = 4, 12
BYTES_PER_PAIR = 80
STEPS = 100


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=20_000_000)
    arguments.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.read:
        read(given.read)
        return
    with tempfile.TemporaryDirectory(prefix="tandem-many-pairs-") as temporary:
        free = shutil.disk_usage(temporary).free
        if free < 2 * given.pairs * BYTES_PER_PAIR:
            sys.exit(f"{temporary}: {size(free)} free, twice {size(given.pairs * BYTES_PER_PAIR)} wanted; set TMPDIR")
        write(Path(temporary), given.pairs)
        command = [sys.executable, "-m", "bench.many_pairs", "--read", temporary]
        limit = (DESCRIPTORS, DESCRIPTORS)
        subprocess.run(command, check=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))


def write(directory: Path, pairs: int) -> None:
    """Write random sentences, and their order by length."""
    started, random = time.monotonic(), np.random.default_rng(1)
    for number, first in enumerate(range(0, pairs, CHUNK_LINES)):
        count = min(CHUNK_LINES, pairs - first)
        write_shard(directory, number, _side(random, count), _side(random, count))
    shards = time.monotonic()
    write_order(directory)
    files = list(directory.iterdir())
    print(f"{pairs:,} pairs in {len(files):,} files, {size(sum(file.stat().st_size for file in files))}")
    print(f"written in {duration(shards - started)}, put in order in {duration(time.monotonic() - shards)}")


def _side(random: np.random.Generator, count: int) -> EncodedSide:
    lengths = random.integers(SHORTEST, LONGEST, count, endpoint=True)
    return EncodedSide(random.integers(4, VOCABULARY, int(lengths.sum()), dtype=np.uint16), lengths)


def read(directory: Path) -> None:
    """Open the corpus and read the micro-batches of some steps, as training does."""
    process, started = psutil.Process(), time.monotonic()
    pairs = EncodedPairs(directory)
    opened = time.monotonic()
    batches = Batches.of_run(Config.load("transformer-base", ["batch.tokens=8192"]), pairs)
    ready = time.monotonic()
    rows = tokens = 0
    most = process.num_fds()
    for step in range(1, STEPS + 1):
        batch = batches.at(step)
        for micro_batch in batch.micro_batches:
            batches.packed(micro_batch, pinned=False)
            rows += len(micro_batch.rows)
        tokens += batch.target_tokens
        most = max(most, process.num_fds())
    seconds = time.monotonic() - ready
    print(f"opened in {opened - started:.2f} s, micro-batches cut in {ready - opened:.2f} s")
    print(f"{STEPS} steps of {rows // STEPS:,} pairs, {tokens:,} target tokens in all, read in {seconds:.2f} s")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    print(f"{most} descriptors of {limit:,}, {len(os.listdir('/proc/self/map_files')):,} maps")


if __name__ == "__main__":
    main()
