"""Whether training has become slower or larger since the figures in bench/baseline.json: for a look before a release.

    python -m bench.regress [--shape small|transformer-base] [--precision float32] [--write]

A training of the demo's grammar and a process that multiplies matrices take turns (see testbed/taking_turns.py). Target
tokens for each billion of multiplications and additions that the machine does in the same time say how well its speed
is used, whatever else it does; other processors have other figures, so each kind has a baseline of its own. Ends with 1
if less is done or more memory is taken than the baseline allows. `--write` makes the figures of today the baseline.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from bench.before_after import corpus_for, started
from bench.peers import PRECISIONS, ROOT, TANDEM_SETTINGS, TURN_SECONDS, WARM_UP_STEPS, started_matrices
from testbed.peer_settings import Precision
from testbed.taking_turns import contest, take_turns

BASELINE = Path(__file__).with_name("baseline.json")
# The median of six turns moves by a few percent on a machine that others share, peak memory hardly.
MOST_SLOWER, MOST_LARGER = 0.08, 0.05


class Figures(NamedTuple):
    """What is compared."""

    tokens_per_gflop: float
    peak_mb: float

    def faults(self, before: Figures) -> list[str]:
        """What has become worse than it may."""
        slower, larger = 1 - self.tokens_per_gflop / before.tokens_per_gflop, self.peak_mb / before.peak_mb - 1
        found = []
        if slower > MOST_SLOWER:
            found.append(f"{slower:.0%} slower ({MOST_SLOWER:.0%} allowed)")
        if larger > MOST_LARGER:
            found.append(f"{larger:.0%} more memory ({MOST_LARGER:.0%} allowed)")
        return found


def measure(shape: str, precision: Precision, turns: int, seconds: float) -> Figures:
    with tempfile.TemporaryDirectory() as name, contest() as contenders:
        directory = Path(name)
        corpus = corpus_for(directory, demo=True)
        contenders += [
            started_matrices(directory, precision),
            started("now", ROOT, shape, precision, corpus, directory, TANDEM_SETTINGS),
        ]
        for contender in contenders:
            contender.warm_up(WARM_UP_STEPS)
        take_turns(contenders, turns, seconds)
        matrices, training = contenders
        # Pairs of turns, because the machine may change between them.
        used = [mine / (theirs / 1e9) for mine, theirs in zip(training.speeds, matrices.speeds, strict=True)]
        print(f"{training.speed:,.0f} tokens/s beside {matrices.speed / 1e9:,.0f} GFLOP/s")
        return Figures(round(statistics.median(used), 3), round(training.peak_memory() / 1e6))


def processor() -> str:
    """The name of this machine's kind of processor, and its threads."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{found[1] if found else 'unknown'}, {torch.get_num_threads()} threads"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--shape", choices=TURN_SECONDS, default="small")
    arguments.add_argument("--precision", choices=PRECISIONS, default="float32")
    arguments.add_argument("--turns", type=int, default=6)
    arguments.add_argument("--write", action="store_true", help="make these figures the baseline")
    options = arguments.parse_args()
    work = f"{options.shape}, {options.precision}"
    baselines = json.loads(BASELINE.read_text(encoding="utf-8"))
    known = baselines.setdefault(processor(), {})
    found = measure(options.shape, options.precision, options.turns, TURN_SECONDS[options.shape])
    print(f"{work}: {found.tokens_per_gflop:.3f} tokens for a GFLOP, peak {found.peak_mb:,} MB")
    if options.write:
        known[work] = found._asdict()
        BASELINE.write_text(json.dumps(baselines, indent=2) + "\n", encoding="utf-8")
        print(f"{BASELINE.name}: these are the baseline of {processor()}")
        return
    if work not in known:
        sys.exit(f"{BASELINE.name} has no figures for {work} on {processor()}; --write makes these the baseline")
    before = Figures(**known[work])
    print(f"baseline: {before.tokens_per_gflop:.3f} tokens for a GFLOP, peak {before.peak_mb:,} MB")
    if faults := found.faults(before):
        sys.exit(f"worse than the baseline: {', '.join(faults)}")
    print("not worse than the baseline")


if __name__ == "__main__":
    main()
