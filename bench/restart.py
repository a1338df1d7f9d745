"""How long a run stands still when a process is killed: from SIGKILL to the next step, with `tandem launch --restarts`.

    python -m bench.restart --kills 4 --dir runs/restart

Two hosts (network namespaces joined by a cable, an ssh server each) train the demo's model with one process each. A
process of one of them, in turns, is killed; the time runs until the next log line, which comes after a step. Needs
root, iproute2 and openssh-server.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from testbed.journals import read_journal
from testbed.network_rig import Rig

LONGEST_SECONDS = 60.0
SETTINGS = ("train.max_steps=1000000", "evaluation.every_steps=1000000", "train.log_every=1", "batch.micro_batches=2")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=4)
    arguments.add_argument("--dir", type=Path, default=Path("runs/restart"))
    given = arguments.parse_args()
    directory = given.dir.resolve()
    _prepare(directory)
    with Rig() as rig:
        seconds = [_seconds_lost(rig, directory, kill % 2) for kill in range(given.kills)]
    print(
        f"{given.kills} kills: training again after a median of {statistics.median(seconds):.1f} s, "
        f"at most {max(seconds):.1f} s (limit {LONGEST_SECONDS:.0f} s)"
    )
    sys.exit(max(seconds) > LONGEST_SECONDS)


def _prepare(directory: Path) -> None:
    if not (directory / "corpus").exists():
        text = directory / "text"
        text.mkdir(parents=True, exist_ok=True)
        write_demo_text(text)
        train, dev = ((text / f"{split}.en", text / f"{split}.de") for split in ("train", "dev"))
        prepare(CorpusTexts([train], dev), directory / "corpus", CorpusConfig(vocab_size=1000))


def _seconds_lost(rig: Rig, directory: Path, rank: int) -> float:
    """Train, kill a rank's process, and wait for the next log line; then stop. Seconds between the two."""
    ssh, run = f"ssh -F {rig.serve_ssh().config}", directory / "run"
    train = ["train", "demo", *SETTINGS, "--corpus", str(directory / "corpus"), "--run", str(run)]
    launch = ["launch", "-H", "vm1:1,vm2:1", "--ssh", ssh, "--restarts", "1", "--", *train]
    process = rig.run(
        rig.hosts[0],
        [sys.executable, "-m", "tandem", *launch],
        {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    _wait_for_step(process)
    starts = [record for record in read_journal(run / f"journal/rank-{rank}.jsonl") if record["kind"] == "started"]
    killed = time.monotonic()
    os.kill(starts[-1]["process"], signal.SIGKILL)
    _wait_for_step(process, sessions=1)
    seconds = time.monotonic() - killed
    print(f"rank {rank} killed: the next log line came after {seconds:.1f} s", flush=True)
    process.send_signal(signal.SIGINT)
    process.communicate()
    return seconds


def _wait_for_step(process: subprocess.Popen[str], sessions: int = 0) -> None:
    """Read the launcher's output up to the first log line after so many starts."""
    assert process.stdout is not None
    for line in process.stdout:
        if "attempt" in line:
            sessions -= 1
            print(line.strip(), flush=True)
        if line.startswith("[vm1] step ") and sessions <= 0:
            return
    raise SystemExit("the training has ended")


if __name__ == "__main__":
    main()
