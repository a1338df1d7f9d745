"""The demo: from the embedded toy grammar to a trained translator, in one go."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from tandem.config import load
from tandem.corpus.demo import write
from tandem.corpus.prepare import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.monitor.console import ConsoleView, evaluation_lines, literal, say
from tandem.monitor.stages import shown_stages
from tandem.serve.translator import load_translator
from tandem.train.evaluate import evaluate_run
from tandem.train.job import FINISHED
from tandem.train.loop import run_training
from tandem.train.restore import choose_checkpoint
from tandem.train.run import Run
from tandem.train.shelf import Shelf

SENTENCES = 3


def run_demo(directory: Path, console: Console, program: str) -> dict[str, Any]:
    """Generate, prepare, train, evaluate, translate; a demo that was interrupted goes on where it stopped.

    `program` is how the user calls Tandem, for the line that invites to go on.
    """
    corpus, run = _corpus(directory, console), directory / "run"
    if _is_finished(run):
        # Whoever asks for a demo wants to see one: the old run gives way.
        shutil.rmtree(run)
    console.rule("a Transformer learns English to German (a toy grammar)", align="left")
    start = time.perf_counter()
    ended = run_training(load("demo"), corpus.directory, run, [ConsoleView(console)])
    seconds = time.perf_counter() - start
    if ended.reason != FINISHED:
        return {"training_seconds": seconds, "reason": ended.reason}
    console.rule("sentences whose word combinations were never seen in training", align="left")
    opened = Run.open(run)
    checkpoint = choose_checkpoint(opened, "best")
    evaluated = evaluate_run(opened, corpus=corpus, checkpoint=checkpoint, split="test")
    for line in [*evaluation_lines(evaluated)[:1], evaluated.signature]:
        say(console, line)
    translator = load_translator(opened, checkpoint)
    sources = corpus.text("test")[0][:SENTENCES]
    translations = translator.translate(sources)
    for source, translation in zip(sources, translations, strict=True):
        say(console, f"    {literal(source)}")
        say(console, f"      -> {literal(translation)}")
    command = f'{program} translate {run} "The old man reads a book."'
    say(console, f"\nNow one of your own:\n  {literal(command)}")
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
    write(text)
    train, dev, test = ((text / f"{split}.en", text / f"{split}.de") for split in ("train", "dev", "test"))
    with shown_stages(console) as progress:
        return prepare(train=[train], dev=dev, test=test, out=prepared, settings=load("demo").corpus, progress=progress)


def _is_finished(run: Path) -> bool:
    newest = Shelf(run).newest(1)
    return bool(newest) and newest[0].step >= load("demo").train.max_steps
