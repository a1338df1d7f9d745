"""A prepared corpus in a few lines for a person."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.corpus.prepared import PreparedCorpus


def summary_lines(corpus: PreparedCorpus) -> Iterator[str]:
    """Lines, MB (10^6 bytes) and tokens of each split and language, stage by stage, and what was dropped."""
    facts = corpus.facts
    origin = f", from {facts.origin}" if facts.origin else ""
    yield f"{corpus.directory}: {facts.source_language} to {facts.target_language}{origin}"
    yield from _table(corpus)
    dropped = [f"{count:,} {rule.replace('_', ' ')}" for rule, count in facts.splits["train"].dropped.items() if count]
    if dropped:
        yield f"dropped from train: {', '.join(dropped)}"
    for name, split in facts.splits.items():
        if split.in_train:
            yield f"{name}: {split.in_train:,} of {split.source.cleaned.lines:,} pairs also stand in train"
    vocabulary = facts.vocabulary
    more = f" (the text has no more to give: {vocabulary.requested:,} were asked for)"
    yield f"vocabulary: {vocabulary.actual:,} pieces" + (more if vocabulary.actual < vocabulary.requested else "")


def _table(corpus: PreparedCorpus) -> Iterator[str]:
    facts = corpus.facts
    rows = [["", "", "raw", "", "cleaned", "", "encoded"], ["", "lines", "MB", "lines", "MB", "tokens", "MB"]]
    for name, split in facts.splits.items():
        for language, side in ((facts.source_language, split.source), (facts.target_language, split.target)):
            cells = [f"{name:5} {language}"]
            cells += [f"{side.raw.lines:,}", f"{side.raw.mb:,.2f}", f"{side.cleaned.lines:,}"]
            cells += [f"{side.cleaned.mb:,.2f}", f"{side.encoded.tokens:,}", f"{side.encoded.mb:,.2f}"]
            rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        figures = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"  {row[0]:{widths[0]}}  {'  '.join(figures)}"
