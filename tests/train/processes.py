"""Real training processes for tests: started through the command line, alone or by torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tandem.corpus.prepared import PreparedCorpus
from tandem.monitor.journal import read_journal
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
