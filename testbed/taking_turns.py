"""Processes that are compared in speed: all alive at once, one running at a time, taking turns by SIGSTOP and SIGCONT.

Whatever else the machine does so hits all of them alike: the ratio of their speeds is stable where the speeds are not.
A process appends a line to a file for each piece of work it has done.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

LOOK_SECONDS = 0.2
PEAK_MEMORY = re.compile(r"VmHWM:\s+(\d+) kB")


@dataclass
class Contender:
    """A process that works when it is let, and the file that it counts its work in."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    work: Callable[[bytes], int]
    """The work that a line of the file stands for; 0 if the line tells of something else."""
    speeds: list[float] = field(default_factory=list)
    """Work a second, of each turn."""
    pieces: list[int] = field(default_factory=list)
    """Every piece of work that was seen so far, those of the warm-up among them."""
    _read: int = 0

    @property
    def speed(self) -> float:
        """Work a second over all turns, which are equally long."""
        return sum(self.speeds) / len(self.speeds)

    def done(self) -> list[int]:
        """The pieces of work that the file has gained since the last look."""
        lines = self.log.read_bytes()[self._read :] if self.log.exists() else b""
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        found = [work for work in map(self.work, whole.splitlines()) if work]
        self.pieces += found
        return found

    def peak_memory(self) -> int:
        """The most bytes of memory that the process and its children have held, each counted by itself."""
        process = psutil.Process(self.process.pid)
        family = (process.pid, *(child.pid for child in process.children(recursive=True)))
        peaks = (PEAK_MEMORY.search(Path(f"/proc/{number}/status").read_text(encoding="utf-8")) for number in family)
        return sum(int(peak[1]) * 1024 for peak in peaks if peak)

    def warm_up(self, pieces: int) -> None:
        """Let it run until it has done some work, then stop it."""
        while len(self.pieces) < pieces:
            self._check_alive()
            time.sleep(LOOK_SECONDS)
            self.done()
        self._stop()

    def run(self, seconds: float) -> None:
        """One turn; the piece of work that it ends in counts with the next turn, as it does for the others."""
        self.done()
        start = time.perf_counter()
        self.process.send_signal(signal.SIGCONT)
        time.sleep(seconds)
        self._stop()
        self.speeds.append(sum(self.done()) / (time.perf_counter() - start))
        self._check_alive()

    def run_timed(self, seconds: float) -> tuple[float, list[tuple[float, int]]]:
        """One turn, looked at all the while, of one that may end by itself.

        The seconds that it has run, and the pieces of work with the seconds after which each was seen.
        """
        seen = [(0.0, work) for work in self.done()]
        start = time.perf_counter()
        self.process.send_signal(signal.SIGCONT)
        while (elapsed := time.perf_counter() - start) < seconds and self.process.poll() is None:
            time.sleep(min(LOOK_SECONDS, seconds - elapsed))
            seen += [(time.perf_counter() - start, work) for work in self.done()]
        self._stop()
        elapsed = time.perf_counter() - start
        seen += [(elapsed, work) for work in self.done()]
        if self.process.returncode:
            sys.exit(f"{self.name} ended by itself; see above")
        return elapsed, seen

    def _stop(self) -> None:
        """Stop it; on a busy machine it takes a while until all of its threads have."""
        self.process.send_signal(signal.SIGSTOP)
        if self.process.returncode is None:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _check_alive(self) -> None:
        if self.process.poll() is not None:
            sys.exit(f"{self.name} ended by itself; see above")


@contextmanager
def contest() -> Iterator[list[Contender]]:
    """A list to put contenders into; whatever happens, they are ended with it."""
    contenders: list[Contender] = []
    # A process that is ended must not leave stopped ones behind.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("ended by SIGTERM"))
    try:
        yield contenders
    finally:
        for contender in contenders:
            contender.process.kill()
            contender.process.wait()
        signal.signal(signal.SIGTERM, before)


def take_turns(contenders: Sequence[Contender], turns: int, seconds: float) -> None:
    """Let each run so many turns; every other round goes backwards, so that none always follows the same one."""
    for turn in range(turns):
        for contender in contenders if turn % 2 else contenders[::-1]:
            contender.run(seconds)
