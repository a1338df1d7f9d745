"""Domain adaptation: a model of everyday sentences (Tatoeba) goes on with captions of pictures (Multi30k).

    python -m bench.adapt --dir runs/adapt
    python -m bench.adapt --dir /tmp/adapt --general-steps 6 --steps 4 --lines 40    # whether it works: two minutes

Trains `small` on Tatoeba, then on Multi30k for a tenth of the steps: from scratch, going on from the Tatoeba model with
its vocabulary, with an extended one, and with its embedding and encoder frozen. All are scored on the test texts of
both: what was gained, and what was forgotten. With the defaults an hour and a half on two cores, reckoned from the time
of a step, half of it for the Tatoeba model; an interrupted measurement goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console

from tandem.config import Config
from tandem.corpus.fetch.holdout import HeldOut, UndividedText, hold_out
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts, FilePair
from tandem.monitor.console_view import ConsoleView
from tandem.scoring import bleu_score, bleu_signature
from tandem.training.loop import train
from tandem.translation.translator import Translator
from testbed.journals import read_journal

# Pairs of Tatoeba to choose the best checkpoint by, and to score; as many as Multi30k has.
HELD_OUT = 1000
# A tenth of the rate that a model is trained with from scratch: what is known is to be kept.
SCRATCH_PEAK, ADAPTED_PEAK = 1.5e-3, 1.5e-4
# Share of the steps over which the rate rises.
WARM_UP = 0.1
NEW_PIECES = 1000


@dataclass(frozen=True)
class Trial:
    """One way to a model of captions."""

    name: str
    corpus: str
    peak: float
    settings: tuple[str, ...] = ()
    goes_on: bool = True


TRIALS = (
    Trial("scratch", "captions", SCRATCH_PEAK, goes_on=False),
    Trial("adapted", "captions-same", ADAPTED_PEAK),
    Trial("adapted, vocabulary extended", "captions-extended", ADAPTED_PEAK),
    Trial(
        "adapted, embedding and encoder frozen",
        "captions-same",
        ADAPTED_PEAK,
        ("optimizer.freeze=[embedding,encoder]",),
    ),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tatoeba", type=Path, default=Path("../shared/corpora/tatoeba"))
    arguments.add_argument("--multi30k", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--dir", type=Path, default=Path("runs/adapt"))
    arguments.add_argument("--general-steps", type=int, default=5000, help="Steps on Tatoeba.")
    arguments.add_argument("--steps", type=int, default=500, help="Steps on Multi30k, from scratch and adapted alike.")
    arguments.add_argument("--lines", type=int, default=HELD_OUT, help="Lines of each test text that are scored.")
    options = arguments.parse_args()
    general = options.dir / "general"
    everyday = everyday_corpus(options.tatoeba, options.dir)
    take_steps(everyday, general, options.general_steps, SCRATCH_PEAK)
    files = {
        split: (options.multi30k / f"{name}.en", options.multi30k / f"{name}.de")
        for split, name in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr"))
    }
    texts = CorpusTexts([files["train"]], files["dev"], files["test"])
    corpora = {
        "captions": prepared(texts, options.dir / "captions"),
        "captions-same": prepared(texts, options.dir / "captions-same", general),
        "captions-extended": prepared(texts, options.dir / "captions-extended", general, NEW_PIECES),
    }
    tests = [corpus.text("test") for corpus in (corpora["captions"], everyday)]
    rows: list[tuple[str, float, float, float | None]] = []
    rows += [("Tatoeba's model as it is", *scores(general, tests, options.lines), None)]
    for number, trial in enumerate(TRIALS):
        run, corpus = options.dir / f"trial-{number}", corpora[trial.corpus]
        take_steps(corpus, run, options.steps, trial.peak, trial.settings, general if trial.goes_on else None)
        rows.append((trial.name, *scores(run, tests, options.lines), step_seconds(run)))
    print(f"{options.general_steps:,} steps on Tatoeba, {options.steps:,} on Multi30k; BLEU on {options.lines:,} lines")
    print(f"{'':40}{'Multi30k':>10}{'Tatoeba':>10}{'s/step':>10}")
    for name, captions, sentences, seconds in rows:
        print(f"{name:40}{captions:>10.2f}{sentences:>10.2f}{'' if seconds is None else f'{seconds:.3f}':>10}")
    print(bleu_signature())


def everyday_corpus(text: Path, directory: Path) -> PreparedCorpus:
    """Tatoeba, with pairs held out by their source sentence, so that none is on two sides."""
    held_out = directory / "tatoeba"
    files: dict[str, FilePair] = {
        split: (held_out / f"{split}.en", held_out / f"{split}.de") for split in ("train", "dev", "test")
    }
    if not (directory / "everyday").is_dir():
        held_out.mkdir(parents=True, exist_ok=True)
        source, target = text / "tatoeba.en", text / "tatoeba.de"
        undivided = UndividedText((source, target), (source.name, target.name), files["train"])
        hold_out([undivided], {split: HeldOut(HELD_OUT, files[split]) for split in ("dev", "test")})
    return prepared(CorpusTexts([files["train"]], files["dev"], files["test"]), directory / "everyday")


def prepared(texts: CorpusTexts, place: Path, vocabulary: Path | None = None, extend: int = 0) -> PreparedCorpus:
    """The corpus that is there, or made now."""
    if place.is_dir():
        return PreparedCorpus.open(place)
    return prepare(texts, place, Config.load("small").corpus, vocabulary=vocabulary, extend=extend)


def take_steps(
    corpus: PreparedCorpus,
    run: Path,
    steps: int,
    peak: float,
    settings: Sequence[str] = (),
    start_from: Path | None = None,
) -> None:
    """Train, or go on with what was begun; ten evaluations on the way."""
    every = max(steps // 10, 1)
    config = Config.load(
        "small",
        [
            f"train.max_steps={steps}",
            f"schedule.peak={peak}",
            f"schedule.warmup_steps={max(int(WARM_UP * steps), 1)}",
            f"evaluation.every_steps={every}",
            f"checkpoint.every_steps={every}",
            *settings,
        ],
    )
    print(f"== {run.name}: {steps:,} steps on {corpus.directory.name}")
    train(config, corpus.directory, run, [ConsoleView(Console())], start_from=start_from)


def scores(run: Path, tests: Sequence[tuple[list[str], list[str]]], lines: int) -> tuple[float, float]:
    """BLEU of a run's best checkpoint on captions and on everyday sentences."""
    translator = Translator.load(run)
    captions, sentences = (
        bleu_score(translator.translate(sources[:lines]), references[:lines])[0] for sources, references in tests
    )
    return captions, sentences


def step_seconds(run: Path) -> float:
    """Mean time of a step, as the journal's log lines have it, without the first, in which all begins."""
    logged = [record for record in read_journal(run / "journal/rank-0.jsonl") if record["kind"] == "progressed"]
    kept = list(islice(logged, 1, None)) or logged
    return float(sum(record["step_seconds"] * record["steps"] for record in kept) / sum(r["steps"] for r in kept))


if __name__ == "__main__":
    main()
