"""Decides which training pairs are worth learning from, by rules that each have a name and a number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tandem.config import CorpusConfig
from tandem.corpus.prepare.language_id import ExpectedLanguages
from tandem.corpus.text_files import RawLine, RawPair, count_words
from tandem.corpus.tokenizer import SPACE_MARK
from tandem.errors import TandemError

KEPT = 0
"""The verdict on a pair that no rule drops."""

JudgedSentences = tuple[int, str, str, int, int]
"""Verdict, source, target, words of the source, words of the target."""

REPLACEMENT = "\ufffd"
"""What decoders write in place of bytes they cannot read: a text that holds it was damaged before it came here."""

# Unicode's control characters but the tab, which is a space, and its two line separators, at which other programs
# would break the line in two.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")

# Damage touches a line here and there. In another encoding every line with a letter beyond ASCII is broken: of German
# sentences 39 % (Tatoeba) to 69 % (Multi30k), of Russian ones all. English has so few that their loss is no harm.
_MOST_BROKEN = 0.1


class CleaningRules:
    """The rules that the settings ask for, cheap ones first; a pair is counted under the first that drops it."""

    def __init__(self, settings: CorpusConfig, languages: tuple[str, str]) -> None:
        self.settings, self.languages = settings, languages
        wanted = {
            "long_line": True,
            "broken_utf8": True,
            "control_characters": True,
            "empty_side": True,
            "too_many_words": True,
            "length_ratio": settings.max_ratio is not None,
            "copy": settings.drop_copies,
            "other_language": settings.identify_languages,
            "duplicate": settings.drop_duplicates,
        }
        self.names = tuple(name for name, is_wanted in wanted.items() if is_wanted)
        """The rules in order: verdict k stands for names[k - 1]."""
        self._numbers = {name: number for number, name in enumerate(self.names, start=1)}
        self.broken_utf8 = self._numbers["broken_utf8"]
        self.duplicate = self._numbers.get("duplicate")
        """The verdict on a pair that came before: `judge`, which sees a part of the corpus, never gives it."""
        self._max_words, self._max_ratio = settings.max_words, settings.max_ratio or math.inf
        self._drop_copies = settings.drop_copies
        self._identifier = ExpectedLanguages(languages) if settings.identify_languages else None

    def judge(self, pairs: Iterable[RawPair]) -> Iterator[JudgedSentences]:
        """Each pair's verdict, its text as it stands, and its words; a side that cannot be read is empty."""
        for raw_source, raw_target in pairs:
            source, target = text_of(raw_source), text_of(raw_target)
            if source is None or target is None:
                unread = "long_line" if raw_source is None or raw_target is None else "broken_utf8"
                source, target = source or "", target or ""
                yield self._numbers[unread], source, target, count_words(source), count_words(target)
            else:
                words = count_words(source), count_words(target)
                rule = self._rule(source, target, words)
                yield self._numbers[rule] if rule else KEPT, source, target, *words

    def _rule(self, source: str, target: str, words: tuple[int, int]) -> str | None:
        if REPLACEMENT in source or REPLACEMENT in target:
            return "broken_utf8"
        plain = source.isprintable() and target.isprintable()
        if not plain and (CONTROL.search(source) or CONTROL.search(target)):
            return "control_characters"
        if is_empty(source) or is_empty(target):
            return "empty_side"
        if words[0] > self._max_words or words[1] > self._max_words:
            return "too_many_words"
        if len(source) > self._max_ratio * len(target) or len(target) > self._max_ratio * len(source):
            return "length_ratio"
        if self._drop_copies and (source == target or source.strip() == target.strip()):
            return "copy"
        identifier = self._identifier
        if identifier and (identifier.is_other(source, 0) or identifier.is_other(target, 1)):
            return "other_language"
        return None


def is_empty(sentence: str) -> bool:
    """Whether nothing is left to learn from."""
    # The tokenizer takes its own space mark in the text for a space, so marks alone would encode to nothing.
    return not sentence.strip() or (SPACE_MARK in sentence and not sentence.replace(SPACE_MARK, " ").strip())


def text_of(line: RawLine) -> str | None:
    """The text of a line; None if it is too long or not UTF-8."""
    if line is None:
        return None
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def check_encoding(path: Path, broken: int, lines: int) -> None:
    """Refuse a training file of which a good part cannot be decoded: it is not damaged but in another encoding."""
    if broken > _MOST_BROKEN * lines:
        raise TandemError(
            f"{path}: {broken:,} of {lines:,} lines ({broken / lines:.0%}) are not UTF-8; "
            f"convert the file, for example: iconv -f LATIN1 -t UTF-8 {path}"
        )
