"""Training speed beside a foreign process, against that of a machine left alone, in turns.

    python -m bench.disturbed [--preset small] [--turns 6] [--seconds 10]

One training (Multi30k beside the project, or the demo's grammar with --demo) runs all the time through its own command
line. In every round it is left alone for a turn, then has beside it, a turn each: a process that takes half a core at
the lowest priority, one that takes a whole core at the lowest priority, and one that takes a whole core at its own.
Prints tokens/s (non-padding target tokens) and the share of the quiet speed that is left. On a machine that is not
quiet by itself the first figure is too low, and with it all shares are too high.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.before_after import WARM_UP_STEPS, corpus_for, started
from testbed.taking_turns import contest

# Long enough to be worth a scheduler's while, short enough to come many times in a turn.
PERIOD_SECONDS = 0.02
BUSY = """
import os, sys, time
share, period = float(sys.argv[1]), float(sys.argv[2])
os.nice(int(sys.argv[3]))
while True:
    end = time.thread_time() + share * period
    while time.thread_time() < end:
        pass
    time.sleep((1 - share) * period)
"""


class Foreign(NamedTuple):
    """Another program on the machine."""

    share: float
    """Of a core."""
    nice: int


LOWEST = 19
SITUATIONS = {
    "left alone": None,
    "half a core, lowest priority": Foreign(0.5, LOWEST),
    "a whole core, lowest priority": Foreign(1.0, LOWEST),
    "a whole core, equal priority": Foreign(1.0, 0),
}


@contextmanager
def beside(foreign: Foreign | None) -> Iterator[None]:
    """A foreign process as long as the block lasts."""
    if foreign is None:
        yield
        return
    command = [sys.executable, "-c", BUSY, str(foreign.share), str(PERIOD_SECONDS), str(foreign.nice)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default="small")
    arguments.add_argument("--precision", default="float32", help="bfloat16 only where the processor multiplies it")
    arguments.add_argument("--turns", type=int, default=6)
    arguments.add_argument("--seconds", type=float, default=10.0, help="of one turn")
    arguments.add_argument("--demo", action="store_true", help="the demo's grammar instead of Multi30k")
    options = arguments.parse_args()
    speeds: dict[str, list[float]] = {name: [] for name in SITUATIONS}
    with tempfile.TemporaryDirectory() as name, contest() as contenders:
        corpus, tree = corpus_for(Path(name), options.demo), Path(__file__).parents[1]
        contenders.append(started("training", tree, options.preset, options.precision, corpus, Path(name)))
        contenders[0].warm_up(WARM_UP_STEPS)
        for _ in range(options.turns):
            for situation, foreign in SITUATIONS.items():
                with beside(foreign):
                    contenders[0].run(options.seconds)
                speeds[situation].append(contenders[0].speeds[-1])
    quiet = statistics.mean(speeds["left alone"])
    print(f"{options.preset}, {options.precision}, {options.turns} turns of {options.seconds:g} s each")
    print(f"{'':32}{'tokens/s':>10}{'of quiet':>10}")
    for situation, found in speeds.items():
        print(f"{situation:32}{statistics.mean(found):10,.0f}{statistics.mean(found) / quiet:10.0%}")


if __name__ == "__main__":
    main()
