"""Train `tiny` or `small` on Multi30k English-German from several seeds and score each on test_2016_flickr.

    python -m bench.multi30k [--preset tiny] [--seeds 1 2 3] [--dir runs/multi30k]

An interrupted measurement goes on where it stopped. What is scored is the best checkpoint by dev BLEU, with the
preset's own search: cased, as everywhere, and lower-cased as old papers do, both on detokenised text by sacreBLEU's own
tokenizer. The time is that of training alone, from the journal, with the evaluations during training told apart;
operations are those of the model's matrix products.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from rich.console import Console
from sacrebleu.metrics.bleu import BLEU

from bench.throughput import flops_per_target_token
from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.model.translation_model import build_model
from tandem.monitor.console_view import ConsoleView
from tandem.training.loop import train
from tandem.training.run_directory import Run
from tandem.translation.translator import Translator
from testbed.journals import read_journal

SPLITS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
METRICS = {"cased": BLEU(), "lower-cased": BLEU(lowercase=True)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", choices=("tiny", "small"), default="tiny")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--dir", type=Path, default=Path("runs/multi30k"))
    options = arguments.parse_args()
    corpus = prepared(options.text, options.dir / "corpus", Config.load(options.preset))
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for seed in options.seeds:
        config, directory = (
            Config.load(options.preset, [f"train.seed={seed}"]),
            options.dir / f"{options.preset}-{seed}",
        )
        train(config, corpus.directory, directory, [ConsoleView(Console())])
        run = Run.open(directory)
        print(f"seed {seed}: {training_cost(run)}")
        sources, references = corpus.text("test")
        translations = Translator.load(directory, "best", engine="tandem").translate_sentences(sources)
        for name, metric in METRICS.items():
            found[name].append(metric.corpus_score(translations, [references]).score)
            print(f"seed {seed}: test BLEU {found[name][-1]:.2f} {name}, {metric.get_signature()}", flush=True)
    for name, scores in found.items():
        print(f"mean of {len(scores)}: test BLEU {statistics.mean(scores):.2f} {name}")


def prepared(text: Path, directory: Path, config: Config) -> PreparedCorpus:
    """The corpus, made if it is not there."""
    if directory.is_dir():
        return PreparedCorpus.open(directory)
    files = {split: (text / f"{name}.en", text / f"{name}.de") for split, name in SPLITS.items()}
    return prepare(CorpusTexts([files["train"]], files["dev"], files["test"]), directory, config.corpus)


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
    shape = build_model(run.config.model, run.tokenizer().vocab_size)
    return (
        f"{progressed[-1]['step']:,} steps, {progressed[-1]['epoch']:.0f} epochs, {tokens / 1e6:.1f} M target tokens, "
        f"{tokens * flops_per_target_token(shape) / 1e12:.0f} trillion operations: "
        f"{training / 60:.0f} min of training and {evaluation / 60:.0f} min of evaluation on "
        f"{started['world_size']} x {started['threads']} threads, {tokens / training:,.0f} target tokens/s"
    )


if __name__ == "__main__":
    main()
