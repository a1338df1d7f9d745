"""Decides which training pairs are worth learning from, by rules that each have a name, a number and a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from tandem.config import CorpusConfig
from tandem.corpus.prepare.language_id import ExpectedLanguages, language_of_sentence
from tandem.corpus.text_files import LONGEST_LINE, RawLine, RawPair, count_words
from tandem.corpus.tokenizer import SPACE_MARK
from tandem.errors import TandemError

T = TypeVar("T")

KEPT = 0
"""The verdict on a pair that no rule drops."""

Fault = tuple[str, Callable[[], str]]
"""The rule that drops a pair, and what tells why; most are never asked, so the sentence is not made beforehand."""

JudgedSentences = tuple[int, str, str, int, int]
"""Verdict, source, target, words of the source, words of the target."""

REPLACEMENT = "\ufffd"
"""What decoders write in place of bytes they cannot read: a text that holds it was damaged before it came here."""

# Unicode's control characters but the tab, which is a space, and its two line separators, at which other programs
# would break the line in two.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")

_SIDES = ("source", "target")

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
        for pair in pairs:
            source, target = text_of(pair[0]), text_of(pair[1])
            words = count_words(source or ""), count_words(target or "")
            fault = self._fault(pair, source, target, words)
            yield self._numbers[fault[0]] if fault else KEPT, source or "", target or "", *words

    def why(self, pair: RawPair) -> str:
        """Why a pair was dropped."""
        source, target = text_of(pair[0]), text_of(pair[1])
        fault = self._fault(pair, source, target, (count_words(source or ""), count_words(target or "")))
        # What no rule finds fault with by itself was dropped as a duplicate.
        return "an equal pair came before" if fault is None else fault[1]()

    def _fault(self, pair: RawPair, source: str | None, target: str | None, words: tuple[int, int]) -> Fault | None:
        """The first rule that drops a pair, with its reason."""
        if source is None or target is None:
            if None in pair:
                return "long_line", partial(_too_long, pair)
            return "broken_utf8", partial(_by_side, _damage, *pair)
        if REPLACEMENT in source or REPLACEMENT in target:
            return "broken_utf8", partial(_by_side, _damage, *pair)
        plain = source.isprintable() and target.isprintable()
        if not plain and (CONTROL.search(source) or CONTROL.search(target)):
            return "control_characters", partial(_by_side, _control_character, source, target)
        if is_empty(source) or is_empty(target):
            return "empty_side", partial(_by_side, lambda text: "empty" if is_empty(text) else None, source, target)
        if words[0] > self._max_words or words[1] > self._max_words:
            return "too_many_words", partial(_by_side, "{} words".format, *words)
        if len(source) > self._max_ratio * len(target) or len(target) > self._max_ratio * len(source):
            return "length_ratio", partial(_ratio, len(source), len(target))
        if self._drop_copies and (source == target or source.strip() == target.strip()):
            return "copy", lambda: "target is the source again"
        identifier = self._identifier
        if identifier and (identifier.is_other(source, 0) or identifier.is_other(target, 1)):
            return "other_language", partial(_by_side, _language, source, target)
        return None


def _too_long(pair: RawPair) -> str:
    sides = " and ".join(side for side, line in zip(_SIDES, pair, strict=True) if line is None)
    return f"{sides}: longer than {LONGEST_LINE:,} bytes, which is no sentence"


def _ratio(source: int, target: int) -> str:
    ratio = max(source, target) / max(1, min(source, target))
    return f"{_SIDES[target > source]} {ratio:.1f} times as long, in characters"


def _by_side(reason: Callable[[T], str | None], source: T, target: T) -> str:
    """The reasons of both sides; none for a side that is fine."""
    found = zip(_SIDES, (reason(source), reason(target)), strict=True)
    return ", ".join(f"{side}: {why}" for side, why in found if why)


def _damage(line: RawLine) -> str | None:
    assert line is not None, "a line too long is another rule's"
    try:
        return "holds U+FFFD, which earlier damage leaves" if REPLACEMENT in line.decode() else None
    except UnicodeDecodeError as error:
        return f"not UTF-8, byte {error.start + 1} is 0x{line[error.start]:02x}"


def _control_character(text: str) -> str | None:
    found = CONTROL.search(text)
    return found and f"character {found.start() + 1} is U+{ord(found[0]):04X}"


def _language(text: str) -> str:
    return f"reads like {language_of_sentence(text)}"


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
