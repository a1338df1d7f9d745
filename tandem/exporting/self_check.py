"""The check that every export must pass: the model, loaded back from its files, translates as ours does.

Two things are compared. The log-probabilities that both models give to the same translations do not depend on any
search: they show whether the weights, the tokenizer and the arithmetic are the same. The translations that both find
show what a user gets; other programs search in other ways, and where two hypotheses are as good as each other, either
may win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from tandem.corpus.progress import ProgressCallback
from tandem.errors import TandemError
from tandem.exporting.export_format import LoadedExport, Quantization, TrainedModel
from tandem.exporting.sequence_scores import log_probabilities
from tandem.model.length_rules import length_penalty
from tandem.scoring import bleu_score
from tandem.translation.torch_engine import TorchEngine
from tandem.translation.translator import Translator

# Lines of dev that are translated: the fewest of which half a percent is a whole sentence.
LINES = 200
# Hypotheses whose scores differ by less are ties: the arithmetic of two programs in float32 differs by as much.
TIE = 1e-3
# Below so much BLEU a model hardly translates: it finds many hypotheses equally bad, and every search another of them.
# Then only log-probabilities are judged.
TRANSLATES = 10.0
# Lines translated between two reports of progress.
PORTION = 40


@dataclass(frozen=True)
class Tolerance:
    """What a number format explains."""

    log_probability: float
    """Mean difference of the two models' log-probabilities of a translation, in nats."""
    bleu: float
    """BLEU that may be lost."""
    same_weights: bool = False
    """Whether only a different search, or a tie, explains a different translation."""


# Measured with `small` on Multi30k (bench/export.py): 3e-6, 0.0008 and 0.03 nats a sentence. BLEU of int8 stays within
# 0.3 on 1,000 lines, but not on every 200 of them, where a line is worth up to half a point; damage costs tens.
TOLERANCES: dict[Quantization, Tolerance] = {
    "float32": Tolerance(log_probability=1e-3, bleu=1.0, same_weights=True),
    "float16": Tolerance(log_probability=0.02, bleu=1.0),
    "int8": Tolerance(log_probability=0.5, bleu=1.5),
}


@dataclass(frozen=True)
class CheckText:
    """What an export is checked on."""

    origin: str
    """Where the lines come from, for people."""
    sources: list[str]
    references: list[str] | None
    """None where so few lines are left that BLEU would mean nothing."""


@dataclass(frozen=True)
class ExportCheck:
    """An exported model compared with ours."""

    program: str
    """What ran the exported model."""
    origin: str
    """Where the lines come from."""
    lines: int
    identical: int
    """Lines whose two translations are the same."""
    ties: int
    """Lines that differ, though our own model scores the other translation as high as its own, or higher."""
    log_probability_difference: float
    """Mean difference of the two models' log-probabilities of our translations, in nats."""
    exported_bleu: float | None
    own_bleu: float | None
    """None if there are too few lines to tell."""
    signature: str | None
    """sacreBLEU's signature of both."""

    @property
    def share_identical(self) -> float:
        return self.identical / self.lines

    @property
    def worse(self) -> int:
        """Lines whose other translation our own model finds worse."""
        return self.lines - self.identical - self.ties


def check_export(
    trained: TrainedModel, exported: LoadedExport, text: CheckText, progress: ProgressCallback
) -> ExportCheck:
    """Translate with both models, and compare."""
    own = Translator(TorchEngine(trained.model, trained.search), trained.tokenizer, trained.languages)
    ours, theirs = list[str](), list[str]()
    for start in range(0, len(text.sources), PORTION):
        progress("check", start, len(text.sources), "lines")
        portion = text.sources[start : start + PORTION]
        ours += own.translate_sentences(portion)
        theirs += exported.translate(portion)
    progress("check", len(text.sources), len(text.sources), "lines")
    differing = [index for index, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    own_bleu, signature = bleu_score(ours, text.references) if text.references else (None, None)
    return ExportCheck(
        program=exported.program,
        origin=text.origin,
        lines=len(ours),
        identical=len(ours) - len(differing),
        ties=sum(loss < TIE for loss in losses(trained, text.sources, ours, theirs, differing)),
        log_probability_difference=mean_difference(trained, exported, text.sources, ours),
        exported_bleu=bleu_score(theirs, text.references)[0] if text.references else None,
        own_bleu=own_bleu,
        signature=signature,
    )


def mean_difference(
    trained: TrainedModel, exported: LoadedExport, sources: Sequence[str], targets: Sequence[str]
) -> float:
    """How much the log-probabilities of these translations differ, in the mean."""
    found = exported.log_probabilities(sources, targets)
    return fmean(abs(one - other) for one, other in zip(_scores(trained, sources, targets), found, strict=True))


def losses(
    trained: TrainedModel,
    sources: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
    indices: Sequence[int],
) -> list[float]:
    """For some of the lines, how much lower our own model scores their translation than ours, by our length penalty."""
    chosen = [sources[index] for index in indices]
    own = _normalised(trained, chosen, [ours[index] for index in indices])
    other = _normalised(trained, chosen, [theirs[index] for index in indices])
    return [one - another for one, another in zip(own, other, strict=True)]


def refuse_if_different(result: ExportCheck, quantization: Quantization, search_share: float, place: str) -> None:
    """Raise the error for an export that differs by more than its number format and its program's search explain."""
    allowed = TOLERANCES[quantization]
    faults = []
    if result.log_probability_difference > allowed.log_probability:
        faults.append(
            f"log-probabilities differ by {result.log_probability_difference:.3g} nats a sentence, "
            f"{quantization} explains {allowed.log_probability:g}"
        )
    if result.exported_bleu is not None and result.own_bleu is not None and result.own_bleu >= TRANSLATES:
        expected = search_share * result.lines
        most = round(expected + 3 * sqrt(expected))  # in so few lines chance alone may bring so many together
        if allowed.same_weights and result.worse > most:
            faults.append(f"{result.worse} of {result.lines} sentences are translated worse, {most} would be explained")
        # BLEU of fewer lines moves by points when a single one changes.
        lost = result.own_bleu - result.exported_bleu if result.lines >= LINES else 0.0
        if lost > allowed.bleu:
            faults.append(f"BLEU falls by {lost:.2f}, {quantization} explains {allowed.bleu:g}")
    if faults:
        raise TandemError(
            f"{place}: not left behind, because the exported model differs from ours when run by {result.program}: "
            f"{'; '.join(faults)}; try --quantization float32, or another version of that program"
        )


def _normalised(trained: TrainedModel, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    alpha = trained.search.length_penalty
    lengths = [len(ids) + 1 for ids in trained.tokenizer.encode(targets)]
    scored = zip(_scores(trained, sources, targets), lengths, strict=True)
    return [value / length_penalty(length, alpha) for value, length in scored]


def _scores(trained: TrainedModel, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    encode, longest = trained.tokenizer.encode, trained.max_length - 1
    # Other programs may write more than our model knows positions for.
    return log_probabilities(trained.model, encode(sources), [ids[:longest] for ids in encode(targets)])
