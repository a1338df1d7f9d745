"""One session of a training: all of its processes from start to end, killed on the way if a plan says so."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.faults.places import START_UP, STEP, Notes, Trap
from testbed.faults.rank_process import RankOrder, fork, start_fresh

# Between two looks at the processes.
LOOK_SECONDS = 0.001
# As launchers do: those that are left get a while to notice, then SIGTERM, then SIGKILL.
NOTICE_SECONDS, TERM_SECONDS = 3.0, 30.0
# A session takes seconds; one of these has hung, however busy the machine is.
HUNG_SECONDS = 300.0


@dataclass(frozen=True)
class Kill:
    """SIGKILL for one process or all of them, in a trap of the victim's or so long after it is sprung."""

    victim: int
    everybody: bool
    trap: Trap | None
    """None for a time since the start of the session."""
    delay: float = 0.0
    fresh: bool = False
    """Whether processes start afresh instead of from a fork: to be killed while they import."""

    def __str__(self) -> str:
        who = "all" if self.everybody else f"rank {self.victim}"
        if self.trap is None:
            return f"{who} {self.delay:.3f} s after the start"
        if self.trap.operation is not None:
            return f"{who} at operation {self.trap.operation} of {self.trap.place} {self.trap.visit}"
        return f"{who} {self.delay * 1000:.1f} ms into {self.trap.place} {self.trap.visit}"

    @classmethod
    def parse(cls, text: str) -> Kill | None:
        """A kill at an operation, from the words that it is printed in."""
        found = re.fullmatch(r"(?:all|rank (\d+)) at operation (\d+) of (.+) (\d+)", text)
        if found is None:
            return None
        rank, operation, place, visit = found.groups()
        return cls(int(rank or 0), rank is None, Trap(place, int(visit), int(operation)), fresh=place == START_UP)


@dataclass(frozen=True)
class Site:
    """Where a training runs, and with which settings."""

    runs: Sequence[Path]
    """The run's directory as each rank has it: the same for all, or one for each on a disk of its own."""
    corpus: Path
    settings: Sequence[str]
    scratch: Path
    """For what processes print and note."""


@dataclass(frozen=True)
class SessionEnd:
    """How a session has ended."""

    codes: Sequence[int]
    """Exit codes by rank, negative for the signal that ended it."""
    killed: bool
    place: str
    """Where the victim was."""
    steps: int
    """Steps that the fastest process had taken."""
    hung: bool
    notes: Sequence[Notes]
    output: str

    @property
    def well(self) -> bool:
        return not any(self.codes)


def run_session(site: Site, kill: Kill | None, *, fresh: bool = False) -> SessionEnd:
    """Start a process a run, kill as planned, and wait until all have ended."""
    orders = _orders(site, kill)
    notes = [Notes(Path(order.notes), new=True) for order in orders]
    start = start_fresh if fresh or (kill is not None and kill.fresh) else fork
    started = time.monotonic()
    processes = _Processes([start(order) for order in orders])
    killed = kill is not None and _strike(processes, kill, notes[kill.victim], started)
    place = notes[kill.victim].where if kill is not None else ""
    if killed and kill is not None:
        processes.wait(NOTICE_SECONDS)
        processes.signal(signal.SIGTERM)
        processes.wait(TERM_SECONDS)
    else:
        processes.wait(HUNG_SECONDS)
    hung = bool(processes.alive)
    processes.signal(signal.SIGKILL)
    processes.wait(HUNG_SECONDS)
    output = "".join(Path(order.output).read_text(errors="replace") for order in orders)
    codes = [processes.codes[process] for process in processes.ids]
    return SessionEnd(codes, killed, place, max(note.finished(STEP) for note in notes), hung, notes, output)


def _strike(processes: _Processes, kill: Kill, notes: Notes, started: float) -> bool:
    """Wait for the instant and kill; whether it came before the processes had ended."""
    victim = processes.ids[kill.victim]
    if kill.trap is None:
        time.sleep(max(started + kill.delay - time.monotonic(), 0.0))
    else:
        # In a trap with an operation the victim kills itself.
        while victim in processes.alive and not (notes.sprung and kill.trap.operation is None):
            if time.monotonic() > started + HUNG_SECONDS:
                return False
            time.sleep(LOOK_SECONDS)
            processes.look()
        time.sleep(kill.delay)
    processes.signal(signal.SIGKILL, processes.ids if kill.everybody else [victim])
    processes.wait_for(victim)
    return processes.codes[victim] == -signal.SIGKILL


class _Processes:
    """Processes of this one's, by process id."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self.codes = ids, dict[int, int]()

    @property
    def alive(self) -> list[int]:
        return [process for process in self.ids if process not in self.codes]

    def look(self) -> None:
        """Collect those that have ended."""
        for process in self.alive:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self.codes[process] = os.waitstatus_to_exitcode(status)

    def signal(self, number: signal.Signals, to: Sequence[int] | None = None) -> None:
        """Send a signal to those of some, or of all, that are alive: an id is its process's own until `look` has it."""
        self.look()
        for process in self.alive:
            if to is None or process in to:
                os.kill(process, number)

    def wait(self, seconds: float) -> None:
        """Wait until all have ended, or so long."""
        end = time.monotonic() + seconds
        self.look()
        while self.alive and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
            self.look()

    def wait_for(self, process: int) -> None:
        while process in self.alive:
            time.sleep(LOOK_SECONDS)
            self.look()


def _orders(site: Site, kill: Kill | None) -> list[RankOrder]:
    """An order for each rank: all meet on the loopback, each as if on a host of its own."""
    site.scratch.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    orders = []
    for rank, run in enumerate(site.runs):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(site.runs)),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TANDEM_HOST": f"host-{rank}",
        }
        arguments = ["train", "demo", *site.settings, "--corpus", str(site.corpus), "--run", str(run)]
        output = site.scratch / f"output-{rank}"
        output.unlink(missing_ok=True)
        trap = kill.trap if kill is not None and kill.victim == rank else None
        # Wrapping imports what it wraps, in another order than the program does by itself.
        wrapped = kill is None or not kill.fresh
        notes = site.scratch / f"notes-{rank}"
        orders.append(RankOrder(arguments, environment, str(output), str(notes), trap, wrapped))
    return orders
