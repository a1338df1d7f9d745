"""The demo: from the embedded toy grammar to a trained translator, in one go."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tandem.monitor.console_view import ConsoleView, evaluation_lines, literal, say
from tandem.monitor.records import FINISHED
from tandem.monitor.stage_progress import progress_bars
from tandem.training.checkpoints.checkpoint_store import CheckpointStore
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.evaluate import evaluate_run
from tandem.training.loop import train
from tandem.training.run_directory import Run
from tandem.translation.translator import Translator

SENTENCES = 3


def run_demo(directory: Path, console: Console, program: str) -> dict[str, Any]:
    """Generate, prepare, train, evaluate, translate; a demo that was interrupted goes on where it stopped.

    `program` is how the user calls Tandem, for the line that invites to go on.
    """
    corpus, run = _corpus(directory, console), directory / "run"
    newest = CheckpointStore(run).newest(1)
    if newest and newest[0].step >= Config.load("demo").train.max_steps:
        # Whoever asks for a demo wants to see one: the old run gives way.
        shutil.rmtree(run)
    console.rule("a Transformer learns English to German (a toy grammar)", align="left")
    start = time.perf_counter()
    ended = train(Config.load("demo"), corpus.directory, run, [ConsoleView(console)])
    seconds = time.perf_counter() - start
    if ended.reason != FINISHED:
        return {"training_seconds": seconds, "reason": ended.reason}
    console.rule("sentences whose word combinations were never seen in training", align="left")
    opened = Run.open(run)
    checkpoint = choose_checkpoint(opened, "best")
    evaluated = evaluate_run(opened, corpus=corpus, checkpoint=checkpoint, split="test")
    for line in [*evaluation_lines(evaluated)[:1], evaluated.signature]:
        say(console, line)
    sources = corpus.text("test")[0][:SENTENCES]
    translations = Translator.load(run).translate(sources)
    for source, translation in zip(sources, translations, strict=True):
        say(console, f"    {literal(source)}")
        say(console, f"      -> {literal(translation)}")
    command = f'{program} translate {run} "The old man reads a book."'
    say(console, f"\nNow one of your own:\n  {literal(command)}")
    say(console, f"or in the browser:\n  {literal(f'{program} serve {run}')}")
    return {
        "bleu": evaluated.bleu,
        "signature": evaluated.signature,
        "training_seconds": seconds,
        "reason": ended.reason,
        "translations": dict(zip(sources, translations, strict=True)),
    }


def _corpus(directory: Path, console: Console) -> PreparedCorpus:
    """The demo corpus, generated and prepared unless it is there already."""
    prepared = directory / "corpus"
    if prepared.is_dir():
        return PreparedCorpus.open(prepared)
    text = directory / "text"
    write_demo_text(text)
    train, dev, test = ((text / f"{split}.en", text / f"{split}.de") for split in ("train", "dev", "test"))
    with progress_bars(console) as progress:
        return prepare(CorpusTexts([train], dev, test), prepared, Config.load("demo").corpus, progress=progress)
