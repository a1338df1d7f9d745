"""Real training processes for tests: started through the command line, alone or as ranks that meet."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tandem.corpus.prepared import PreparedCorpus
from tests import warm
from tests.cluster.ranks import rank_environments
from tests.conftest import TINY

HOST = "here"
# Of a process that has not ended by then none will.
TIMEOUT = 300


def train_command(corpus: PreparedCorpus, run: Path, *overrides: str) -> list[str]:
    """The command that trains the tiny model."""
    train = ["train", "demo", *TINY, *overrides, "--corpus", str(corpus.directory), "--run", str(run)]
    return [sys.executable, "-m", "tandem", *train]


def run_training(
    corpus: PreparedCorpus, run: Path, *overrides: str, processes: int = 1
) -> subprocess.CompletedProcess[str]:
    """Train to the end, whatever the end is; what all ranks said, and the first exit code that is not 0."""
    if processes == 1:
        return warm.run(train_command(corpus, run, *overrides), timeout=TIMEOUT)
    ended = train_on_hosts([corpus] * processes, [run] * processes, [HOST] * processes, *overrides)
    code = next((each.returncode for each in ended if each.returncode), 0)
    out, err = ("".join(texts) for texts in zip(*((each.stdout, each.stderr) for each in ended), strict=True))
    return subprocess.CompletedProcess(ended[0].args, code, out, err)


def signal_training_when(
    line_start: str, number: signal.Signals, corpus: PreparedCorpus, run: Path, *overrides: str, processes: int = 1
) -> None:
    """Train, and send a signal to every process as soon as a line of output starts like this; then wait for the end."""
    with started_ranks([corpus] * processes, [run] * processes, [HOST] * processes, *overrides) as ranks:
        read_until(line_start, ranks[0])
        for rank in ranks:
            rank.send_signal(number)
        for rank in ranks:
            rank.communicate(timeout=TIMEOUT)


@contextmanager
def started_ranks(
    corpora: Sequence[PreparedCorpus], runs: Sequence[Path], hosts: Sequence[str], *overrides: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Training processes, one a rank with its own corpus and run, each as if on the host named for it.

    None of them outlives the block.
    """
    places = zip(corpora, runs, rank_environments(hosts), strict=True)
    processes: list[subprocess.Popen[str]] = [
        warm.WarmProcess(
            train_command(corpus, run, *overrides),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A reader of lines may have taken half of a character, whose rest `communicate` cannot decode.
            errors="replace",
        )
        for corpus, run, environment in places
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            # Reads what is left and closes the pipes, if nobody has.
            process.communicate()


def train_on_hosts(
    corpora: Sequence[PreparedCorpus], runs: Sequence[Path], hosts: Sequence[str], *overrides: str
) -> list[subprocess.CompletedProcess[str]]:
    """Train to the end, whatever the end is; what each rank said."""
    with started_ranks(corpora, runs, hosts, *overrides) as processes:
        said = [process.communicate(timeout=TIMEOUT) for process in processes]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, out, err)
            for process, (out, err) in zip(processes, said, strict=True)
        ]


def kill_hosts_when(
    line_start: str, corpora: Sequence[PreparedCorpus], runs: Sequence[Path], hosts: Sequence[str], *overrides: str
) -> None:
    """Train, and kill every rank as soon as a line of the first one starts like this."""
    with started_ranks(corpora, runs, hosts, *overrides) as processes:
        read_until(line_start, processes[0])


def read_until(line_start: str, process: subprocess.Popen[str]) -> None:
    """Read what a training prints until a line starts like this."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(line_start):
            return
    raise AssertionError(f"no line starts with {line_start!r}: {lines} {process.communicate()}")
