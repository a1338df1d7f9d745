"""A prepared corpus in a few lines for a person."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.corpus.prepared import PreparedCorpus


def summary_lines(corpus: PreparedCorpus) -> Iterator[str]:
    """Lines, MB and tokens of each split and language, raw and cleaned, and what was dropped."""
    facts = corpus.facts
    yield f"{corpus.directory}: {facts.source_language} to {facts.target_language}"
    for name, split in facts.splits.items():
        for language, side in ((facts.source_language, split.source), (facts.target_language, split.target)):
            yield (
                f"  {name:5} {language}  {side.raw.lines:,} lines, {side.raw.mb:.2f} MB raw; "
                f"{side.cleaned.lines:,} lines, {side.cleaned.mb:.2f} MB cleaned; {side.tokens:,} tokens"
            )
        dropped = [f"{count:,} {rule.replace('_', ' ')}" for rule, count in split.dropped.items() if count]
        if dropped:
            yield f"  {name:5} dropped: {', '.join(dropped)}"
    vocabulary = facts.vocabulary
    yield f"  {vocabulary.actual:,} pieces in the joint vocabulary"
    if vocabulary.actual < vocabulary.requested:
        yield f"  (the text has no more to give: {vocabulary.requested:,} were asked for)"
