"""The doctor's predictions and the step times that training then has, in two hosts at three link rates.

    python -m bench.doctor --dir runs/doctor

Two processes with one thread each, in network namespaces joined by a cable with a rate limit. At every rate `tandem
doctor` predicts, then `small` is trained with a plain all-reduce and with what `auto` takes, and the step times come
from the journals: the median of the log lines after the first. Needs root, iproute2 and a quiet machine with two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.two_hosts import Bench, placed
from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from testbed.network_rig import Rig

RATES = ("1000mbit", "100mbit", "34700kbit")
WAYS = ("allreduce", "auto")
PAIRS = 20_000
# One all-reduce in eight is looked at and takes a little longer: a line has one of them.
STEPS_A_LINE = 8
# Short steps are counted for this long, so that some of them being disturbed does not count.
LEAST_SECONDS = 25.0
LONGEST_SECONDS = 300
BOUND = 0.15


@dataclass(frozen=True)
class Row:
    """A prediction and what came of it."""

    rate: str
    way: str
    predicted_plan: str
    """What the doctor says that the settings lead to."""
    plan: str
    """What the training took."""
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dir", type=Path, default=Path("runs/doctor"))
    arguments.add_argument("--rates", nargs="*", default=RATES)
    options = arguments.parse_args()
    corpus = _corpus(options.dir)
    console = Console(width=140)
    rows: list[Row] = []
    with Rig() as rig:
        bench = Bench(rig, corpus, options.dir, console, STEPS_A_LINE, LEAST_SECONDS)
        for rate in options.rates:
            rig.limit(rate)
            start = time.monotonic()
            diagnosis = _diagnosis(rig, corpus)
            console.print(f"{rate:>9}  doctor: {time.monotonic() - start:.0f} s; {diagnosis['advice']}")
            rows += [_row(bench, rate, way, diagnosis) for way in WAYS]
    console.print(table(rows))
    worst = max(abs(row.ratio - 1) for row in rows)
    print(f"predicted and measured step times differ by {worst:.1%} at most (bound {BOUND:.0%})")


def _corpus(directory: Path) -> Path:
    """Sentences of the toy grammar, prepared for the model."""
    corpus = directory / "corpus"
    if not corpus.is_dir():
        text = directory / "text"
        write_demo_text(text, pairs=PAIRS)
        train, dev = ((text / f"{split}.en", text / f"{split}.de") for split in ("train", "dev"))
        prepare(CorpusTexts([train], dev), corpus, Config.load("small").corpus)
    return corpus


def _diagnosis(rig: Rig, corpus: Path) -> dict[str, Any]:
    """What the doctor says under the same conditions as the training."""
    command = ["-m", "tandem", "doctor", "small", "exchange.start_steps=0", "--corpus", str(corpus.resolve()), "--json"]
    processes = [
        rig.run(host, pinned, environment, stdout=PIPE, stderr=PIPE)
        for host, pinned, environment in placed(rig, command)
    ]
    said = [process.communicate(timeout=LONGEST_SECONDS) for process in processes]
    if not said[0][0]:
        raise RuntimeError("".join(err for _, err in said))
    diagnosis: dict[str, Any] = json.loads(said[0][0])
    return diagnosis


def _row(bench: Bench, rate: str, way: str, diagnosis: dict[str, Any]) -> Row:
    """Train in one way, and look up what was predicted for what the training took."""
    measured = bench.measure(way, rate)
    kind, _, steps = measured.planned.partition(", ")
    plan = f"{kind} with {steps}" if steps else kind
    chosen = next(prediction["exchange"] for prediction in diagnosis["predictions"] if prediction["chosen"])
    predicted = {prediction["exchange"]: prediction["step_seconds"] for prediction in diagnosis["predictions"]}
    return Row(
        rate=rate,
        way=way,
        predicted_plan=chosen if way == "auto" else way,
        plan=plan,
        predicted=predicted[plan],
        measured=statistics.median(measured.line_seconds),
    )


def table(rows: list[Row]) -> Table:
    shown = Table("rate", "exchange", "doctor says", "training took", "predicted s/step", "measured", "ratio")
    for row in rows:
        shown.add_row(
            row.rate,
            row.way,
            row.predicted_plan,
            row.plan,
            f"{row.predicted:.3f}",
            f"{row.measured:.3f}",
            f"{row.ratio:.2f}",
        )
    return shown


if __name__ == "__main__":
    main()
