"""Translations scored: of a run on its test set, or of any file against references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.scoring import Score, score_all
from tandem.training.run_directory import Run
from tandem.translation.line_streams import text_lines
from tandem.translation.translator import EngineChoice, Translator


def score_run(
    run: Path,
    overrides: Sequence[str] = (),
    *,
    split: str | None = None,
    checkpoint: str = "best",
    engine: EngineChoice = "auto",
    corpus: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> list[Score]:
    """Translate a split of the run's corpus and score it; by default test, if there is one."""
    used = Run.open(run, overrides).corpus(corpus)
    sources, references = used.text(used.chosen_split(split))
    translator = Translator.load(run, checkpoint, overrides, engine=engine)
    hypotheses = []
    for _, translation in translator.translate_stream(sources):
        hypotheses.append(translation)
        progress("translate", len(hypotheses), len(sources))
    return score_all(hypotheses, references)


def score_files(hypotheses: Path, references: Path) -> list[Score]:
    """Score a file of translations, line by line, against a file of references."""
    return score_all(list(text_lines(hypotheses)), list(text_lines(references)))
