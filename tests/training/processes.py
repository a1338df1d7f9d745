"""Real training processes for tests: started through the command line, alone, by torchrun, or each by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from tests.cluster.ranks import rank_environments
from tests.conftest import TINY


def train_command(corpus: PreparedCorpus, run: Path, *overrides: str, processes: int = 1) -> list[str]:
    """The command that trains the tiny model."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", "tandem", "--"]
    train = ["train", "demo", *TINY, *overrides, "--corpus", str(corpus.directory), "--run", str(run)]
    return [sys.executable, "-m", *(launcher if processes > 1 else ["tandem"]), *train]


def run_training(
    corpus: PreparedCorpus, run: Path, *overrides: str, processes: int = 1
) -> subprocess.CompletedProcess[str]:
    """Train to the end, whatever the end is."""
    command = train_command(corpus, run, *overrides, processes=processes)
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def signal_training_when(
    line_start: str, number: signal.Signals, corpus: PreparedCorpus, run: Path, *overrides: str, processes: int = 1
) -> None:
    """Train, and send a signal as soon as a line of output starts like this; then wait for the end.

    SIGKILL goes to every process there is, as when a machine dies; any other signal to the one that was started.
    """
    command = train_command(corpus, run, *overrides, processes=processes)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(line_start):
                workers = newest_process_ids(run) if number == signal.SIGKILL else []
                for victim in {process.pid, *workers}:
                    os.kill(victim, number)
                break
        else:
            raise AssertionError(f"the training ended without a line that starts with {line_start!r}")
        process.stdout.read()


def newest_process_ids(run: Path) -> list[int]:
    """The process ids that each rank noted when it last began to work on the run."""
    journals = (read_journal(path) for path in (run / "journal").glob("*.jsonl"))
    return [[record["process"] for record in journal if record["kind"] == "started"][-1] for journal in journals]


@contextmanager
def started_ranks(
    corpora: Sequence[PreparedCorpus], runs: Sequence[Path], hosts: Sequence[str], *overrides: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Training processes, one a rank with its own corpus and run, each as if on the host named for it.

    None of them outlives the block.
    """
    places = zip(corpora, runs, rank_environments(hosts), strict=True)
    processes = [
        subprocess.Popen(
            train_command(corpus, run, *overrides),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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
        said = [process.communicate(timeout=300) for process in processes]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, out, err)
            for process, (out, err) in zip(processes, said, strict=True)
        ]


def kill_hosts_when(
    line_start: str, corpora: Sequence[PreparedCorpus], runs: Sequence[Path], hosts: Sequence[str], *overrides: str
) -> None:
    """Train, and kill every rank as soon as a line of the first one starts like this."""
    with started_ranks(corpora, runs, hosts, *overrides) as processes:
        assert processes[0].stdout is not None
        for line in processes[0].stdout:
            if line.startswith(line_start):
                return
        assert processes[0].stderr is not None
        raise AssertionError(f"no line started with {line_start!r}: {processes[0].stderr.read()}")
