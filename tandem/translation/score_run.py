"""Translations scored by metrics and by COMET: of a run on its test set, or of any file against references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.errors import TandemError
from tandem.metrics import USUAL_METRICS
from tandem.scoring import Score, make_scorer, score_all
from tandem.training.run_directory import Run
from tandem.translation.line_streams import text_lines
from tandem.translation.translator import EngineChoice, Translator

if TYPE_CHECKING:
    from tandem.comet.comet_score import CometScorer


def score_run(
    run: Path,
    overrides: Sequence[str] = (),
    *,
    split: str | None = None,
    checkpoint: str = "best",
    engine: EngineChoice = "auto",
    corpus: Path | None = None,
    metrics: Sequence[str] = USUAL_METRICS,
    comet: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> list[Score]:
    """Translate a split of the run's corpus and score it; by default test, if there is one."""
    used = Run.open(run, overrides).corpus(corpus)
    sources, references = used.text(used.chosen_split(split))
    language = used.facts.target_language
    scorer = _scorer(metrics, language, comet)
    translator = Translator.load(run, checkpoint, overrides, engine=engine)
    hypotheses = []
    for _, translation in translator.translate_stream(sources):
        hypotheses.append(translation)
        progress("translate", len(hypotheses), len(sources))
    scores = score_all(hypotheses, references, metrics=metrics, language=language)
    return scores + ([] if scorer is None else [scorer.score(sources, hypotheses, references, progress)])


def score_files(
    hypotheses: Path,
    references: Path,
    *,
    sources: Path | None = None,
    language: str | None = None,
    metrics: Sequence[str] = USUAL_METRICS,
    comet: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> list[Score]:
    """Score a file of translations, line by line, against a file of references; COMET reads the sources, too."""
    if comet is not None and sources is None:
        raise TandemError("--comet: compares translations with what they were made from, too; give it with --sources")
    scorer = _scorer(metrics, language, comet)
    found, expected = list(text_lines(hypotheses)), list(text_lines(references))
    scores = score_all(found, expected, metrics=metrics, language=language)
    if scorer is None or sources is None:
        return scores
    return [*scores, scorer.score(list(text_lines(sources)), found, expected, progress)]


def _scorer(metrics: Sequence[str], language: str | None, comet: Path | None) -> CometScorer | None:
    """What COMET computes with, if it is asked for; before anything is translated, so that faults come first."""
    for name in metrics:
        make_scorer(name, language)
    if comet is None:
        return None
    from tandem.comet.comet_score import CometScorer

    return CometScorer(comet)
