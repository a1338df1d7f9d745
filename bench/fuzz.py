"""Fuzzes everything that Tandem reads: settings, logs, journals, checkpoints, corpora, exports.

    python -m bench.fuzz --minutes 10
    python -m bench.fuzz --minutes 2 settings shards

Each reader gets damaged and arbitrary input from Hypothesis, with another seed every round, for so long. Anything but
a result or an error for the user is a finding: another exception, a warning of numpy's, more than some seconds for one
input, or more memory than any of these files could need. Prints the tally; findings are shown with the input that they
shrink to.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from hypothesis import HealthCheck, given, seed, settings

from testbed.fuzzing.targets import NAMES, Target, make_targets
from testbed.tiny_training import TINY_MODEL, make_corpus

# One input takes milliseconds; these are for a busy machine.
HANG_SECONDS = 60
# Address space, of which PyTorch takes some gigabytes by itself.
MOST_BYTES = 16 * 2**30
ROUND = 500
"""Inputs of one seed."""


@dataclass
class Tally:
    """What the fuzzing of one target has shown."""

    inputs: int = 0
    taken: int = 0
    """Inputs that were read without an error for the user."""
    seconds: float = 0.0
    findings: int = 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("targets", nargs="*", help=f"by default all: {', '.join(NAMES)}")
    arguments.add_argument("--minutes", type=float, default=10.0, help="for each target")
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    arguments.add_argument("--run", type=Path, help="a finished run, of which copies are damaged; else one is made")
    options = arguments.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    signal.signal(signal.SIGALRM, _hung)
    # What Python or numpy would print between the sentences for the user.
    warnings.simplefilter("error", RuntimeWarning)
    with tempfile.TemporaryDirectory(prefix="tandem-fuzz-") as place:
        targets = make_targets(options.run or _trained(Path(place)), Path(place))
        tallies = {}
        for name in options.targets or NAMES:
            tallies[name] = fuzz(name, targets[name], options.minutes * 60, options.seed)
    print(f"\nseed {options.seed}\n{table(tallies)}")
    sys.exit(any(tally.findings for tally in tallies.values()))


def _trained(place: Path) -> Path:
    """A short training, whose files are to be damaged."""
    corpus, run = make_corpus(place / "made"), place / "made" / "run"
    command = ["train", "demo", *TINY_MODEL, "train.max_steps=4", "checkpoint.every_steps=4", "train.log_every=2"]
    command += ["--corpus", str(corpus), "--run", str(run)]
    subprocess.run([sys.executable, "-m", "tandem", *command], check=True, capture_output=True)
    return run


def _hung(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"one input took more than {HANG_SECONDS} s")


def fuzz(name: str, target: Target, seconds: float, first_seed: int) -> Tally:
    """Rounds of inputs until the time is over or something is found."""
    tally, start = Tally(), time.monotonic()
    end = start + seconds
    while time.monotonic() < end and not tally.findings:
        try:
            _round(target, tally, end, first_seed + tally.inputs)
        except Exception:  # whatever a reader raises is what is looked for
            tally.findings += 1
            print(f"{name}: FOUND\n{traceback.format_exc()}", flush=True)
    signal.alarm(0)
    tally.seconds = time.monotonic() - start
    print(f"{name}: {tally.inputs:,} inputs in {tally.seconds:.0f} s, {tally.findings} findings", flush=True)
    return tally


def _round(target: Target, tally: Tally, end: float, number: int) -> None:
    everything, found = list(HealthCheck), False

    @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=everything, derandomize=False)
    @seed(number)
    @given(target.inputs)
    def try_one(drawn: Any) -> None:
        nonlocal found
        # After a finding the input is still made smaller.
        if time.monotonic() > end and not found:
            return
        tally.inputs += 1
        signal.alarm(HANG_SECONDS)
        try:
            tally.taken += target.check(drawn)
        except Exception:
            found = True
            raise

    try_one()


def table(tallies: dict[str, Tally]) -> str:
    lines = ["| target | inputs | read | refused in a sentence | findings | minutes |", "|---|---|---|---|---|---|"]
    for name, tally in tallies.items():
        refused = tally.inputs - tally.taken - tally.findings
        counts = f"{tally.inputs:,} | {tally.taken:,} | {refused:,} | {tally.findings}"
        lines.append(f"| {name} | {counts} | {tally.seconds / 60:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
