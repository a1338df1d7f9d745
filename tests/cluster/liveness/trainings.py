"""Real trainings whose processes are stopped, killed or cut off, with output and journals to wait for."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from tests.cluster.ranks import rank_environments
from tests.conftest import TINY
from tests.warm import WarmProcess

# Nothing takes so long, even on a machine that is busy with other things.
DEADLINE = 240
# Long enough to be disturbed in the middle.
ENDLESS = (
    *TINY,
    "train.max_steps=100000",
    "train.log_every=1",
    "evaluation.every_steps=100000",
    "checkpoint.every_steps=5",
    "monitor.views=[]",
)


@dataclass
class Process:
    """A rank of a training, and what it has printed."""

    rank: int
    run: Path
    popen: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    _unread: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        assert self.popen.stdout is not None
        threading.Thread(target=self._read, args=(self.popen.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._unread.put(line.rstrip("\n"))
        self._unread.put(None)

    def wait_for(self, words: str) -> str:
        """The next line with these words."""
        while (line := self._unread.get(timeout=DEADLINE)) is not None:
            self.lines.append(line)
            if words in line:
                return line
        raise AssertionError(f"rank {self.rank} ended without {words!r}: {self.lines}")

    def finish(self) -> int:
        """Read to the end; the exit code."""
        while (line := self._unread.get(timeout=DEADLINE)) is not None:
            self.lines.append(line)
        return self.popen.wait(DEADLINE)

    def said(self, words: str) -> list[str]:
        return [line for line in self.lines if words in line]

    def records(self, kind: str) -> list[dict[str, Any]]:
        journal = self.run / "journal" / f"rank-{self.rank}.jsonl"
        return [record for record in read_journal(journal) if record["kind"] == kind]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.popen.pid, number)


def command(corpus: PreparedCorpus, run: Path, *overrides: str) -> list[str]:
    train = ["train", "demo", *ENDLESS, *overrides, "--corpus", str(corpus.directory), "--run", str(run)]
    return [sys.executable, "-m", "tests.cluster.liveness.impatient", *train]


@contextmanager
def training(
    corpus: PreparedCorpus, run: Path, hosts: Sequence[str], *overrides: str, hanging: tuple[int, Path] | None = None
) -> Iterator[list[Process]]:
    """Processes of one run, each as if on the host that is named for it; they print everything to one stream each.

    One of them may hang: at its third step it reads a pipe.
    """
    processes: list[Process] = []
    try:
        for rank, environment in enumerate(rank_environments(hosts)):
            if hanging is not None and rank == hanging[0]:
                environment["HANG_IN_DATA"] = str(hanging[1])
            started = WarmProcess(
                command(corpus, run, *overrides),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            processes.append(Process(rank, run, started))
        yield processes
    finally:
        for process in processes:
            process.popen.kill()
            process.popen.wait()
