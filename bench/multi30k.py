"""Train `small` on Multi30k English-German and score it on test_2016_flickr.

    python -m bench.multi30k --text ../shared/corpora/multi30k --dir runs/multi30k

An interrupted measurement goes on where it stopped. The time is that of training alone, from the journal, with
the evaluations during training told apart.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.monitor.console_view import ConsoleView
from tandem.training.checkpoints.average import average_run
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.evaluate import evaluate_run
from tandem.training.loop import train
from tandem.training.run_directory import Run
from testbed.journals import read_journal

# Eight checkpoints, half an epoch apart, are kept to be averaged.
SETTINGS = ("checkpoint.keep_last=8", "checkpoint.every_steps=125")
SPLITS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--dir", type=Path, default=Path("runs/multi30k"))
    options = arguments.parse_args()
    config, run_directory = Config.load("small", SETTINGS), options.dir / "run"
    corpus_directory = options.dir / "corpus"
    if corpus_directory.is_dir():
        corpus = PreparedCorpus.open(corpus_directory)
    else:
        files = {split: (options.text / f"{name}.en", options.text / f"{name}.de") for split, name in SPLITS.items()}
        corpus = prepare(CorpusTexts([files["train"]], files["dev"], files["test"]), corpus_directory, config.corpus)
    train(config, corpus_directory, run_directory, [ConsoleView(Console())])
    run = Run.open(run_directory)
    average_run(run, last=config.checkpoint.keep_last, best=None)
    print(training_cost(run))
    for choice in ("best", "last", "averaged"):
        checkpoint = choose_checkpoint(run, choice)
        scored = evaluate_run(run, corpus=corpus, checkpoint=checkpoint, split="test")
        # The best by dev BLEU is the figure; the others are there to compare.
        print(f"{choice:8}  test BLEU {scored.bleu:.2f}  loss {scored.eval_loss:.3f}  {scored.signature}")


def training_cost(run: Run) -> str:
    """Steps, tokens and minutes, counting every step that was taken, also those taken again after a stop."""
    records = list(read_journal(run.journals / "rank-0.jsonl"))
    progressed = [record for record in records if record["kind"] == "progressed"]
    started = next(record for record in records if record["kind"] == "started")
    tokens = sum(record["target_tokens"] for record in progressed)
    evaluation = sum(record["seconds"] for record in records if record["kind"] == "evaluated")
    training = sum(
        sum(seconds for part, seconds in record["seconds"].items() if part != "evaluation") for record in progressed
    )
    return (
        f"{progressed[-1]['step']:,} steps, {progressed[-1]['epoch']:.0f} epochs, {tokens / 1e6:.1f} M target tokens: "
        f"{training / 60:.0f} min of training and {evaluation / 60:.0f} min of evaluation on "
        f"{started['world_size']} x {started['threads']} threads, {tokens / training:,.0f} target tokens/s"
    )


if __name__ == "__main__":
    main()
