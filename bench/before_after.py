"""Training speed of this version against another one: both alive, one running at a time, taking turns.

    git worktree add ../before REVISION
    python -m bench.before_after --before ../before [--preset small] [--turns 12]

Each version trains the same preset on the same corpus (Multi30k beside the project, or the demo's grammar with --demo)
through its own command line, logging every step; a process that is not at its turn is stopped by SIGSTOP. So whatever
else the machine does hits both alike. Tokens are non-padding target tokens, read from the journals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from testbed.taking_turns import Contender, contest, take_turns

MULTI30K = Path("../shared/corpora/multi30k")
FOREVER = 1_000_000
WARM_UP_STEPS = 5
SETTINGS = (
    *(f"train.max_steps={FOREVER}", "train.log_every=1"),
    *(f"evaluation.every_steps={FOREVER}", f"checkpoint.every_steps={FOREVER}"),
)


def target_tokens(line: bytes) -> int:
    """The tokens of the step that a line of a journal tells of."""
    return int(json.loads(line)["target_tokens"]) if b'"progressed"' in line else 0


def started(
    name: str, tree: Path, preset: str, precision: str, corpus: Path, directory: Path, settings: Sequence[str] = ()
) -> Contender:
    """Start a training."""
    command = [
        "train",
        preset,
        *SETTINGS,
        f"train.precision={precision}",
        *settings,
        "--corpus",
        str(corpus),
        "--run",
        str(directory / name),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem", *command],
        env={**os.environ, "PYTHONPATH": str(tree.resolve())},
        cwd=tree,
        stdout=subprocess.DEVNULL,
    )
    return Contender(name, process, directory / name / "journal/rank-0.jsonl", target_tokens)


def corpus_for(directory: Path, demo: bool) -> Path:
    text, names = MULTI30K, ("train", "val")
    if demo:
        text, names = directory / "text", ("train", "dev")
        write_demo_text(text, pairs=20_000)
    train, dev = ((text / f"{name}.en", text / f"{name}.de") for name in names)
    settings = CorpusConfig(vocab_size=2000 if demo else 8000)
    prepare(CorpusTexts([train], dev), directory / "corpus", settings)
    return directory / "corpus"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--before", type=Path, required=True, help="checkout of the other version")
    arguments.add_argument("--preset", default="small")
    arguments.add_argument("--precision", default="float32", help="bfloat16 only where the processor multiplies it")
    arguments.add_argument("--turns", type=int, default=12)
    arguments.add_argument("--seconds", type=float, default=10.0, help="of one turn")
    arguments.add_argument("--demo", action="store_true", help="the demo's grammar instead of Multi30k")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        corpus = corpus_for(directory, options.demo)
        trees = {"before": options.before, "now": Path(__file__).parents[1]}
        with contest() as contenders:
            for label, tree in trees.items():
                contenders.append(started(label, tree, options.preset, options.precision, corpus, directory))
                contenders[-1].warm_up(WARM_UP_STEPS)
            take_turns(contenders, options.turns, options.seconds)
    before, now = (contender.speeds for contender in contenders)
    ratios = [b / a for a, b in zip(before, now, strict=True)]
    print(f"{options.preset}: tokens/s before {statistics.mean(before):,.0f} (best turn {max(before):,.0f}), ", end="")
    print(f"now {statistics.mean(now):,.0f} (best {max(now):,.0f})")
    print(f"now / before: {statistics.mean(now) / statistics.mean(before):.3f} over all, ", end="")
    print(f"{statistics.median(ratios):.3f} in the median of {len(ratios)} pairs of turns")


if __name__ == "__main__":
    main()
