"""The table of evaluations as rows of text, for page and Markdown alike."""

from __future__ import annotations

from tandem.reporting.answers import Evaluation, Report
from tandem.units import first_sentences_note

NOTHING = ""


def columns(report: Report) -> list[str]:
    """The heads of the columns that have anything in them."""
    loss = any(found.loss is not None for found in report.evaluations)
    perplexity = any(found.perplexity is not None for found in report.evaluations)
    bleu = any(found.bleu is not None for found in report.evaluations)
    heads = {"loss": loss, "perplexity": perplexity, "BLEU": bleu}
    return [report.axis, *(head for head, there in heads.items() if there), NOTHING]


def cells(evaluation: Evaluation, heads: list[str]) -> list[str]:
    """One evaluation in these columns."""
    bleu = evaluation.bleu
    texts = {
        "loss": _number(evaluation.loss, 3),
        "perplexity": _number(evaluation.perplexity, 2),
        "BLEU": _number(bleu, 2) + (first_sentences_note(evaluation.bleu_first_sentences) if bleu is not None else ""),
        NOTHING: ", ".join(evaluation.best),
    }
    return [
        f"{evaluation.at:,.4g}" if evaluation.at % 1 else f"{evaluation.at:,.0f}",
        *(texts[head] for head in heads[1:]),
    ]


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"
