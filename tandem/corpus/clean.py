"""Decides which training pairs are worth learning from; every pair dropped is counted under one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tandem.config import CorpusConfig
from tandem.corpus.text import Pair
from tandem.corpus.tokenizer import SPACE_MARK


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason to drop a pair, under the name that corpus.json counts it by."""

    name: str
    drops: Callable[[str, str], bool]


def cleaning_rules(settings: CorpusConfig) -> tuple[Rule, ...]:
    """The rules in order; a pair is counted under the first that drops it, so cheap ones come first."""
    most = settings.max_words
    return (
        Rule("empty_side", lambda source, target: _is_empty(source) or _is_empty(target)),
        Rule("too_many_words", lambda source, target: len(source.split()) > most or len(target.split()) > most),
    )


def _is_empty(sentence: str) -> bool:
    # The tokenizer takes its own space mark in the text for a space, so marks alone would encode to nothing.
    return not sentence.replace(SPACE_MARK, " ").strip()


class Cleaner:
    """Passes on the pairs that no rule drops, one at a time, and counts the others."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self.dropped = {rule.name: 0 for rule in rules}

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        for source, target in pairs:
            for rule in self._rules:
                if rule.drops(source, target):
                    self.dropped[rule.name] += 1
                    break
            else:
                yield source, target
