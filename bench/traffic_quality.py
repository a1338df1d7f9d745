"""What the ways of exchanging cost in quality: `small` on Multi30k, two hosts, equal tokens, several seeds.

    python -m bench.traffic_quality --text ../shared/corpora/multi30k --dir runs/quality --seeds 1 2

Every run is a real training by two processes that count as two hosts, one thread each, on this machine's loopback
(how fast the link is does not change what is learnt). Each way of exchanging runs at several peak learning rates
with the first seed, and at its best one with the others. A finished run is not repeated, so an interrupted study
goes on where it stopped. Loss is on dev, without label smoothing; traffic is what each host had to send in the
whole run, from the journal, against plain all-reduce.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from testbed.journals import read_journal

HOSTS = 2
# Five epochs: long enough for BLEU around 30, short enough for a dozen runs in a few hours on two cores.
SETTINGS = ("train.max_steps=1200", "schedule.warmup_steps=200", "evaluation.every_steps=1200")
SPLITS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
PEAKS = ("1.5e-3", "2e-3", "3e-3")
WAYS = {
    "allreduce": ("exchange.kind=allreduce",),
    "int4": ("exchange.kind=int4",),
    "diloco": ("exchange.kind=diloco",),
}


@dataclass(frozen=True)
class Outcome:
    """What a finished run has shown."""

    way: str
    peak: str
    seed: int
    loss: float
    bleu: float
    sent: int

    @classmethod
    def of(cls, directory: Path, way: str, peak: str, seed: int) -> Outcome | None:
        journal = directory / "journal" / "rank-0.jsonl"
        records = list(read_journal(journal)) if journal.exists() else []
        if not records or records[-1].get("reason") != "finished":
            return None
        evaluated = [record for record in records if record["kind"] == "evaluated"][-1]
        sent = sum(record["exchanged_bytes"] for record in records if record["kind"] == "progressed")
        return cls(way, peak, seed, evaluated["eval_loss"], evaluated["bleu"], sent)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--dir", type=Path, default=Path("runs/quality"))
    arguments.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--peaks", nargs="+", default=PEAKS)
    options = arguments.parse_args()
    corpus = options.dir / "corpus"
    if not corpus.is_dir():
        files = {split: (options.text / f"{name}.en", options.text / f"{name}.de") for split, name in SPLITS.items()}
        prepare(CorpusTexts([files["train"]], files["dev"], files["test"]), corpus, Config.load("small").corpus)
    outcomes = []
    for way in WAYS:
        first = [run(options.dir, corpus, way, peak, options.seeds[0]) for peak in options.peaks]
        best = min(first, key=lambda outcome: outcome.loss).peak
        outcomes += first
        outcomes += [run(options.dir, corpus, way, best, seed) for seed in options.seeds[1:]]
    print(table(outcomes))


def run(directory: Path, corpus: Path, way: str, peak: str, seed: int) -> Outcome:
    """Train, unless that was done before."""
    run_directory = directory / f"{way}-{peak}-{seed}"
    outcome = Outcome.of(run_directory, way, peak, seed)
    if outcome is None:
        print(f"training {run_directory.name}", flush=True)
        settings = (*SETTINGS, *WAYS[way], f"schedule.peak={peak}", f"train.seed={seed}")
        train_on_two_hosts(corpus, run_directory, settings)
        outcome = Outcome.of(run_directory, way, peak, seed)
    assert outcome is not None, f"{run_directory} has not finished"
    return outcome


def train_on_two_hosts(corpus: Path, run_directory: Path, settings: tuple[str, ...]) -> None:
    """Start one process for each host and wait for both."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tandem", "train", "small", *settings]
    command += ["--corpus", str(corpus), "--run", str(run_directory)]
    processes = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(HOSTS),
                "LOCAL_RANK": "0",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TANDEM_HOST": f"host-{rank}",
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(HOSTS)
    ]
    for process in processes:
        process.wait()


def table(outcomes: list[Outcome]) -> str:
    """A row a run; differences are to plain all-reduce at its best peak with the same seed."""
    plain = [outcome for outcome in outcomes if outcome.way == "allreduce"]
    best_peak = min(plain, key=lambda outcome: outcome.loss).peak
    reference = {outcome.seed: outcome for outcome in plain if outcome.peak == best_peak}
    lines = [
        "| exchange | peak rate | seed | dev loss | against all-reduce | dev BLEU | against | traffic |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        base = reference[outcome.seed]
        loss, bleu = outcome.loss - base.loss, outcome.bleu - base.bleu
        lines.append(
            f"| {outcome.way} | {outcome.peak} | {outcome.seed} | {outcome.loss:.3f} | {loss:+.3f} "
            f"| {outcome.bleu:.2f} | {bleu:+.2f} | 1/{base.sent / outcome.sent:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
