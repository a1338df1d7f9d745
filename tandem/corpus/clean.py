"""Decides which training pairs are worth learning from, by rules that each have a name and a number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tandem.config import CorpusConfig
from tandem.corpus.identify import Identifier
from tandem.corpus.text import RawLine, count_words
from tandem.corpus.tokenizer import SPACE_MARK
from tandem.errors import TandemError

KEPT = 0
"""The verdict on a pair that no rule drops."""

Judged = tuple[int, str, str, int, int]
"""Verdict, source, target, words of the source, words of the target."""

REPLACEMENT = "\ufffd"
"""What decoders write in place of bytes they cannot read: a text that holds it was damaged before it came here."""

# Unicode's control characters but the tab, which is a space, and its two line separators, at which other programs
# would break the line in two.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")

# Damage touches a line here and there. In another encoding every line with a letter beyond ASCII is broken: of German
# sentences 39 % (Tatoeba) to 69 % (Multi30k), of Russian ones all. English has so few that their loss is no harm.
_MOST_BROKEN = 0.1


class Rules:
    """The rules that the settings ask for, cheap ones first; a pair is counted under the first that drops it."""

    def __init__(self, settings: CorpusConfig, languages: tuple[str, str]) -> None:
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
        number = {name: position for position, name in enumerate(self.names, start=1)}
        self.duplicate = number.get("duplicate")
        """The verdict on a pair that came before: `judge`, which sees a part of the corpus, never gives it."""
        self.long_line, self.broken_utf8 = number["long_line"], number["broken_utf8"]
        self._control, self._empty = number["control_characters"], number["empty_side"]
        self._many_words, self._max_words = number["too_many_words"], settings.max_words
        self._ratio, self._max_ratio = number.get("length_ratio", KEPT), settings.max_ratio or math.inf
        self._copy = number.get("copy", KEPT)
        self._other = number.get("other_language", KEPT)
        self._identifier = Identifier(languages) if settings.identify_languages else None

    def judge(self, pairs: Iterable[tuple[RawLine, RawLine]]) -> Iterator[Judged]:
        """Each pair's verdict, its text as it stands, and its words; a side that cannot be read is empty."""
        verdict_on, count = self._verdict, count_words
        for raw_source, raw_target in pairs:
            try:
                if raw_source is None or raw_target is None:
                    yield self._unread(self.long_line, raw_source, raw_target)
                    continue
                source, target = raw_source.decode(), raw_target.decode()
            except UnicodeDecodeError:
                yield self._unread(self.broken_utf8, raw_source, raw_target)
                continue
            plain_source, plain_target = source.isprintable(), target.isprintable()
            words = count(source), count(target)
            yield verdict_on(source, target, words, plain_source and plain_target), source, target, *words

    @staticmethod
    def _unread(verdict: int, raw_source: RawLine, raw_target: RawLine) -> Judged:
        source, target = text_of(raw_source) or "", text_of(raw_target) or ""
        return verdict, source, target, len(source.split()), len(target.split())

    def _verdict(self, source: str, target: str, words: tuple[int, int], plain: bool) -> int:
        if REPLACEMENT in source or REPLACEMENT in target:
            return self.broken_utf8
        if not plain and (CONTROL.search(source) or CONTROL.search(target)):
            return self._control
        if is_empty(source) or is_empty(target):
            return self._empty
        if words[0] > self._max_words or words[1] > self._max_words:
            return self._many_words
        if len(source) > self._max_ratio * len(target) or len(target) > self._max_ratio * len(source):
            return self._ratio
        if self._copy and (source == target or source.strip() == target.strip()):
            return self._copy
        identifier = self._identifier
        if identifier and (identifier.is_other(source, 0) or identifier.is_other(target, 1)):
            return self._other
        return KEPT


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
