"""SIGTERM at random instants of a training by two processes: does each exit in time, and does the run end the same?

    python -m bench.preemption --signals 100

Every trial trains the demo's grammar with a tiny model and dropout, sends SIGTERM to both processes after a time drawn
from a seed (in a step, an evaluation, a checkpoint, the start-up or while they join), continues the run to its end and
compares weights, optimizer and numbers with those of a run left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, STATE_FILE
from tandem.process_exit import stop_code

STEPS = 24
SETTINGS = (
    *("model.d_model=32", "model.heads=2", "model.d_ff=64", "model.dropout=0.1"),
    *("batch.tokens=256", "batch.micro_batches=4", "search.beam=2", "train.precision=float32"),
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


def trial(corpus: Path, run: Path, wait: float) -> tuple[float, str]:
    """Stop a training after so many seconds: how long it took to end, and how it ended."""
    processes = start(corpus, run)
    time.sleep(wait)
    asked = time.monotonic()
    for process in processes:
        process.send_signal(signal.SIGTERM)
    errors = [process.communicate()[1].decode() for process in processes]
    seconds, codes = time.monotonic() - asked, {process.returncode for process in processes}
    if any("Traceback" in text for text in errors):
        return seconds, f"traceback: {errors}"
    # A run that was at its end when the signal came has ended well, too.
    return seconds, "clean" if codes <= {stop_code(signal.SIGTERM), 0} else f"exit codes {sorted(codes)}: {errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=30.0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    ends, late, different, longest = Counter[str](), 0, 0, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        demo = [sys.executable, "-c", _MAKE_CORPUS, str(directory)]
        subprocess.run(demo, check=True)
        corpus, alone = directory / "corpus", directory / "alone"
        began = time.monotonic()
        finish(corpus, alone)
        whole = time.monotonic() - began
        for number in range(arguments.signals):
            run, wait = directory / f"run-{number}", draw.uniform(0.0, whole)
            seconds, end = trial(corpus, run, wait)
            finish(corpus, run)
            same = same_end(alone, run)
            ends[end], late, different = ends[end] + 1, late + (seconds > arguments.deadline), different + (not same)
            longest = max(longest, seconds)
            print(f"{number + 1}: SIGTERM after {wait:.1f} s, {end} in {seconds:.1f} s, same bits: {same}", flush=True)
            shutil.rmtree(run)
    print(
        f"{arguments.signals} signals: {ends['clean']} clean exits, {late} later than {arguments.deadline:.0f} s "
        f"(longest {longest:.1f} s), {arguments.signals - different} bit-identical endings"
    )
    sys.exit(bool(late or different or ends["clean"] < arguments.signals))


_MAKE_CORPUS = """
import sys
from pathlib import Path
from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
if __name__ == "__main__":
    directory = Path(sys.argv[1])
    write_demo_text(directory, pairs=400)
    train, dev, test = ((directory / f"{split}.en", directory / f"{split}.de") for split in ("train", "dev", "test"))
    prepare(CorpusTexts([train], dev, test), directory / "corpus", CorpusConfig(vocab_size=600), jobs=1)
"""


if __name__ == "__main__":
    main()
