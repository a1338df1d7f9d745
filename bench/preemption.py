"""SIGTERM at random instants of a training by two processes: does each exit in time, and does the run end the same?

    python -m bench.preemption --signals 100

Two real processes train a tiny model with dropout; both get SIGTERM after a time drawn from a seed (in the start-up,
while they join, in a step, an evaluation or a checkpoint). Started again, and stopped again, until it is at its end, a
run has to end with the weights, the optimizer and the numbers of one left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, STATE_FILE
from tandem.process_exit import stop_code
from testbed.tiny_training import TINY_MODEL, make_corpus

STEPS = 24
SETTINGS = (
    *TINY_MODEL,
    *(f"train.max_steps={STEPS}", "train.log_every=2", "evaluation.every_steps=6", "checkpoint.every_steps=4"),
)
PROCESSES = 2


def start(corpus: Path, run: Path) -> list[subprocess.Popen[bytes]]:
    """Both processes of a training, as a launcher starts them."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "tandem", "train", "demo", *SETTINGS, "--corpus", str(corpus), "--run", str(run)]
    return [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(PROCESSES),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in range(PROCESSES)
    ]


def finish(corpus: Path, run: Path) -> None:
    """Train to the end."""
    for process in start(corpus, run):
        errors = process.communicate()[1]
        assert process.returncode == 0, errors.decode()


def same_end(left: Path, right: Path) -> bool:
    """Whether two runs ended with the same bits and the same numbers."""
    ends = [run / f"checkpoints/step-{STEPS:08d}" for run in (left, right)]
    same = all(len({(end / name).read_bytes() for end in ends}) == 1 for name in (MODEL_FILE, OPTIMIZER_FILE))
    numbers = [json.loads((end / STATE_FILE).read_text())["numbers"] for end in ends]
    return same and numbers[0] == numbers[1]


def stop(corpus: Path, run: Path, wait: float) -> tuple[float, set[int], str]:
    """Stop a training after so many seconds: how long it took to end, its exit codes, and what was wrong with it."""
    processes = start(corpus, run)
    time.sleep(wait)
    asked = time.monotonic()
    for process in processes:
        process.send_signal(signal.SIGTERM)
    errors = [process.communicate()[1].decode() for process in processes]
    seconds, codes = time.monotonic() - asked, {process.returncode for process in processes}
    # A run that was at its end when the signal came has ended well, too, and so has one whose Python had yet to start.
    clean = codes <= {stop_code(signal.SIGTERM), 0, -signal.SIGTERM} and not any("Traceback" in text for text in errors)
    return seconds, codes, "" if clean else f"exit codes {sorted(codes)}: {errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=30.0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    taken: list[float] = []
    unclean, runs, same = 0, 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with ProcessPoolExecutor(1) as worker:
            corpus = worker.submit(make_corpus, directory).result()
        alone, began = directory / "alone", time.monotonic()
        finish(corpus, alone)
        whole = time.monotonic() - began
        while len(taken) < arguments.signals:
            run, codes = directory / f"run-{runs}", {1}
            while codes != {0} and len(taken) < arguments.signals:
                wait = draw.uniform(0.0, whole)
                seconds, codes, wrong = stop(corpus, run, wait)
                taken.append(seconds)
                unclean += bool(wrong)
                print(f"{len(taken)}: SIGTERM after {wait:.1f} s, {wrong or 'clean'} in {seconds:.1f} s", flush=True)
            finish(corpus, run)
            runs, same = runs + 1, same + same_end(alone, run)
            print(f"{same} of {runs} runs ended with the same bits", flush=True)
    late = sum(seconds > arguments.deadline for seconds in taken)
    print(
        f"{len(taken)} signals: {len(taken) - unclean} clean exits, {late} later than {arguments.deadline:.0f} s "
        f"(longest {max(taken):.1f} s); {same} of {runs} runs ended with the bits of one left alone"
    )
    sys.exit(bool(late or unclean or same < runs))


if __name__ == "__main__":
    main()
