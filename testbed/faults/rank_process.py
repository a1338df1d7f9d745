"""One process of a training that may be killed: forked from a process that has PyTorch already, or started afresh.

    python -m testbed.faults.rank_process ORDER

A fork saves the seconds in which Python reads PyTorch; all else of it is what `python -m tandem` does.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from testbed.faults.places import Notes, Trap, Watch

# Everything that `tandem train` imports, and what PyTorch imports with the first step, which takes a second.
HEAVY = (
    "tandem.cli.command_line",
    "tandem.training.loop",
    "tandem.monitor.tensorboard_view",
    "torch._dynamo",
    "torch.distributed.fsdp",
)
UNCAUGHT = 70
"""Exit code of a process that ended by an exception, of which its output has the traceback."""


@dataclass(frozen=True)
class RankOrder:
    """What a process is to do."""

    arguments: Sequence[str]
    """Of the command `tandem`."""
    environment: Mapping[str, str]
    output: str
    """The file that takes what it prints."""
    notes: str
    trap: Trap | None = None
    wrapped: bool = True
    """Whether to note all places; otherwise the start-up alone, which is then exactly that of `python -m tandem`."""


def start_fresh(order: RankOrder) -> int:
    """Start a process as a user does; its process id."""
    out = (os.POSIX_SPAWN_OPEN, 1, order.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    command = [sys.executable, "-m", __name__, json.dumps(asdict(order))]
    actions = [empty, out, (os.POSIX_SPAWN_DUP2, 1, 2)]
    return os.posix_spawn(sys.executable, command, dict(order.environment), file_actions=actions)


def fork(order: RankOrder) -> int:
    """Fork a process from this one, which must have a single thread: a fork has no other; its process id."""
    import_heavy()
    assert len(os.listdir("/proc/self/task")) == 1, "this process has threads"
    process = os.fork()
    if process:
        return process
    try:
        out = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (out, 2)):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(order.environment)
        run(order)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        # Whatever happened, this process must never go on in its parent's place.
        os._exit(UNCAUGHT)


def import_heavy() -> None:
    for module in HEAVY:
        import_module(module)


def run(order: RankOrder) -> NoReturn:
    """Do what the order says, and end."""
    watch = Watch(Notes(Path(order.notes)), order.trap)
    if order.wrapped:
        import_heavy()
        watch.wrap()
    sys.argv = ["tandem", *order.arguments]
    try:
        runpy.run_module("tandem", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
    os._exit(0)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run(RankOrder(**{**given, "trap": given["trap"] and Trap(**given["trap"])}))
