"""Starts processes with heartbeats on one host or on those of a rig, and waits for what they tell."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
# Nothing takes so long, even on a machine that is busy with other things.
DEADLINE = 120
PATIENT = 1000.0


class BeatingProcess:
    """One of the processes: what it is told to do, and what it tells."""

    def __init__(self, rank: int, process: subprocess.Popen[str]) -> None:
        self.rank, self._process = rank, process
        self._told: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._told.put(json.loads(line))
        self._told.put(None)

    def do(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def hears(self) -> list[Any] | None:
        """The next thing that it tells; None at its end."""
        return self._told.get(timeout=DEADLINE)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def processor_seconds(self) -> float:
        """Time on a processor that its threads have used so far, as the scheduler has counted it."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def leave(self) -> None:
        """End in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self.hears() is not None:
            pass
        return self._process.wait(DEADLINE)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


Start = Callable[[int, Sequence[str], dict[str, str]], subprocess.Popen[str]]


def start_here(rank: int, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    whole, pipe = {**os.environ, **environment}, subprocess.PIPE
    return subprocess.Popen(command, env=whole, cwd=REPOSITORY, text=True, stdin=pipe, stdout=pipe)


@contextmanager
def members(
    *hosts: str,
    patience: float = PATIENT,
    addresses: Sequence[str] = (),
    start: Start = start_here,
    stacks: Path | None = None,
    impatient: bool = True,
) -> Iterator[list[BeatingProcess]]:
    """One process for each host named, in the order of ranks; each knows the others by the first beats."""
    environment = {} if stacks is None else {"STACKS": str(stacks)}
    if impatient:
        environment["IMPATIENT"] = "yes"
    running: list[BeatingProcess] = []
    offer: list[str] = []
    try:
        for rank, _ in enumerate(hosts):
            address = addresses[rank] if addresses else "127.0.0.1"
            command = [sys.executable, "-m", "testbed.beating_process", str(rank), ",".join(hosts), address]
            running.append(BeatingProcess(rank, start(rank, [*command, str(patience), *offer], environment)))
            if not rank:
                (offered,) = running[0].hears() or [None]
                offer = [json.dumps(offered)]
        # Whoever has computed has been there for some beats.
        for member in running:
            member.do("compute", 0.5)
        assert [member.hears() for member in running] == [["computed"]] * len(running)
        yield running
    finally:
        for member in running:
            member.kill()
