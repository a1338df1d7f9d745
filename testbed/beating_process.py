"""A process with a heartbeat and nothing else, which does what it is told on standard input.

    python -m testbed.beating_process RANK HOST,HOST,... ADDRESS PATIENCE [OFFER]

Prints what its listener hears, a JSON array a line. The first line of rank 0 is the offer that the others need. With
$IMPATIENT it takes seconds for what otherwise takes tens of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tandem.cluster.liveness.liveness import Liveness, PeerListener
from tandem.cluster.liveness.pulse import TIMING
from tandem.cluster.liveness.silence import Silence
from tandem.errors import TandemError
from tandem.monitor.activity import ACTIVITY, EXCHANGE


def tell(*words: Any) -> None:
    # In one write, because two threads may speak.
    os.write(1, json.dumps(words).encode() + b"\n")


class TellingListener(PeerListener):
    """Prints everything."""

    def __init__(self, stack_file: Path | None) -> None:
        self.stack_file = stack_file

    def step(self) -> int:
        return 7

    def fell_silent(self, silence: Silence, speaks: bool) -> None:
        tell("silent", silence.ranks, silence.host, silence.cause, silence.phase, silence.words(), speaks)

    def returned(self, rank: int, host: str, seconds: float, speaks: bool) -> None:
        tell("returned", rank, host, speaks)

    def slept(self, seconds: float) -> None:
        tell("slept")

    def lost(self, words: str, speaks: bool) -> NoReturn:
        tell("lost", words, speaks)
        os._exit(75)


def obey(liveness: Liveness) -> None:
    """Do what the lines on standard input say, until the end."""
    for line in sys.stdin:
        match line.split():
            case ["exchange"]:
                with ACTIVITY.doing(EXCHANGE):
                    sys.stdin.readline()
            case ["read", path]:
                with ACTIVITY.doing("data"):
                    # A pipe that nobody writes to hangs as a dead disk does.
                    Path(path).read_text()
            case ["compute", seconds]:
                with ACTIVITY.doing("compute"):
                    deadline = time.thread_time() + float(seconds)
                    while time.thread_time() < deadline:
                        pass
                tell("computed")
            case ["explain"]:
                tell("explained", *liveness.explain())
            case ["fail", *words]:
                raise TandemError(" ".join(words))


def main() -> None:
    rank, names, address, patience, *offer = sys.argv[1:]
    if "IMPATIENT" in os.environ:
        TIMING.beat, TIMING.silent, TIMING.hanging, TIMING.last_words = 0.2, 5.0, 3.0, 2.0
    hosts: dict[str, list[int]] = {}
    for number, name in enumerate(names.split(",")):
        hosts.setdefault(name, []).append(number)

    def gather(mine: Any) -> list[Any]:
        if offer:
            return [json.loads(offer[0])]
        tell(mine)
        return [mine]

    liveness = Liveness(int(rank), [*hosts.values()], [*hosts], float(patience), address, gather)
    stacks = os.environ.get("STACKS")
    liveness.listener = TellingListener(None if stacks is None else Path(stacks) / f"rank-{rank}.stack")
    try:
        with liveness.watching():
            obey(liveness)
    except TandemError:
        sys.exit(2)


if __name__ == "__main__":
    main()
