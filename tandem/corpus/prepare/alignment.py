"""Finds where one side of a corpus is shifted by some lines, so that line N no longer translates line N.

Translations resemble each other: they are about as long, end in the same mark, and share names, numbers and the
beginnings of related words. In windows of consecutive pairs every source line is compared with its own target line
and with the target lines before and after it. One comparison says next to nothing, and none says much in a text
sorted by length; over hundreds of lines a shift gives itself away.

The measure of it is *evidence*, for every shift on its own: the sum of d - d^2/2, where d says by how much more a
source line resembles the shifted target line than its own. Where there is no shift, d is as likely to be above zero as
equally far below, or less likely; were the lines independent, evidence above h anywhere would then have a chance of
less than exp(-h) times the number of windows and shifts, whatever the languages. Neighbours are not quite independent,
so the bound is set for a chance that leaves much room: the sound corpora at hand stay below zero, not just below it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from tandem.corpus.prepare.cleaning_rules import text_of
from tandem.corpus.text_files import RawLine, RawPair, SentencePair

Floats = npt.NDArray[np.float64]

MOST_SHIFT = 5
"""Lines by which a side may be shifted and still be found."""
SHIFTS = tuple(shift for shift in range(-MOST_SHIFT, MOST_SHIFT + 1) if shift)

# The thirtieth part of a full chunk, which costs a tenth of cleaning it; a chunk of up to 2,048 lines, so every small
# corpus, is looked at from end to end.
_WINDOW_PAIRS = 64
_WINDOWS_OF_CHUNK = 32

# Lines from which on it must show that they belong together. In sound text, sorted or not, the sum of what they have
# more in common than strangers is then some twenty times its standard error; in unrelated text it is about one.
_ENOUGH_LINES = 500
_CLEARLY = 4.0

_SOUND_ACCUSED = 1e-9
"""The chance that a sound corpus is accused; next to nothing, for it would be refused again at every attempt."""
# One window alone may lie in a few dozen lines that an aligner got wrong, which every crawled corpus has.
_FEWEST_WINDOWS = 2

# Scripts written without spaces (Thai to Lao, Khmer, kana, Han) give characters, others words; numbers are cut into
# threes, as "1,000" and "1000" mean the same.
_TOKEN = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\d{1,3}|[^\W\d_]+")
# Related words begin alike and end as their grammars want; of 3, 4 and all letters, 3 told English-German shifts best.
_STEM = 3
# Nobody needs more of a line to see what it resembles.
_MOST_CHARACTERS = 1000
# Lengths this much apart (a factor of e) are no translation; further apart they cannot be less of one.
_FARTHEST = 1.0
# Keeps a letter more or less from counting in lines of a word or two.
_SHORT = 4
# What two sides have in common with a resemblance of 1 is then weighed about as likelihoods would weigh it: lengths
# and words tell a shift of captions equally well, the final mark half as well.
_MARK_WEIGHT = 0.5
# Closing quotes and brackets hide the mark that ends a sentence.
_CLOSERS = " \t\xa0\"'()[]\xab\xbb\u2018\u2019\u201c\u201d\u201e\u300d\u300f\uff09"
# The Chinese, Hindi and Arabic marks; wide ones and the ellipsis become plain ones by normalisation.
_MARKS = {mark: mark for mark in ".?!:"} | {"\u3002": ".", "\u0964": ".", "\u061f": "?"}
_MARK_NUMBERS = {mark: float(number) for number, mark in enumerate(sorted(set(_MARKS.values())), start=1)}
_NO_MARK = 0.0


@dataclass(frozen=True)
class AlignmentWindow:
    """What some consecutive pairs say about each shift."""

    first_line: int
    """Line numbers count from 1."""
    last_line: int
    evidence: tuple[float, ...]
    """For each of SHIFTS in turn: above zero speaks for it, below against it."""
    nearness: tuple[float, float, int]
    """By how much more source lines resemble their own target line than one far away: sum, sum of squares, number."""


@dataclass(frozen=True)
class LineShift:
    """A stretch of a corpus in which line N of the source translates line N + lines of the target."""

    first_line: int
    last_line: int
    lines: int
    reaches_end: bool
    """Nothing after the stretch was seen to be in order again."""


def windows_of_chunk(pairs: Iterable[RawPair], count: int, first_line: int) -> list[AlignmentWindow]:
    """Compare the sides in windows evenly spread over `count` consecutive pairs from line `first_line` on."""
    step = max(_WINDOW_PAIRS, count // _WINDOWS_OF_CHUNK)
    size = _WINDOW_PAIRS + 2 * MOST_SHIFT
    # Only the lines of windows are kept, and no more of each than is looked at.
    lines = {
        number: (_seen(source), _seen(target))
        for number, (source, target) in enumerate(pairs)
        if number % step < size or step < size
    }
    starts = range(0, max(0, count - 2 * MOST_SHIFT), step)
    windows = [[lines[number] for number in range(start, min(start + size, count))] for start in starts]
    half = len(windows) // 2
    return [
        _compare(window, first_line + start, windows[number - half] if half and number % 2 else None)
        for number, (start, window) in enumerate(zip(starts, windows, strict=True))
    ]


def _seen(line: RawLine) -> str:
    return (text_of(line) or "")[:_MOST_CHARACTERS]


def _compare(
    lines: Sequence[SentencePair], first_line: int, far: Sequence[SentencePair] | None = None
) -> AlignmentWindow:
    """Compare each source line, but the first and last few, with the target lines around its own, and with far ones."""
    sides = [[pair[side] for pair in lines] for side in (0, 1)]
    likeness = _likeness(*sides)
    gain = likeness - likeness[:, MOST_SHIFT : MOST_SHIFT + 1]
    # An empty or unreadable line resembles others of its kind, whatever it translates: what it is part of says nothing.
    has_source, has_target = _around(*(np.array([float(bool(line.strip())) for line in side]) for side in sides))
    gain *= has_source * has_target * has_target[:, MOST_SHIFT : MOST_SHIFT + 1]
    evidence = (gain - gain**2 / 2).sum(axis=0)
    nearness = (0.0, 0.0, 0)
    if far and len(far) == len(lines):
        more = likeness[:, MOST_SHIFT] - _likeness(sides[0], [target for _, target in far])[:, MOST_SHIFT]
        nearness = float(more.sum()), float((more**2).sum()), len(more)
    return AlignmentWindow(
        first_line=first_line,
        last_line=first_line + len(lines) - 1,
        evidence=tuple(float(evidence[shift + MOST_SHIFT]) for shift in SHIFTS),
        nearness=nearness,
    )


def _likeness(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    return _shared_words(sources, targets) + _closeness(sources, targets) + _same_marks(sources, targets)


def are_unrelated(windows: Sequence[AlignmentWindow]) -> bool:
    """Whether lines resemble their own partners no more than others far away, though there were enough to see it."""
    total, squares, lines = (sum(window.nearness[column] for window in windows) for column in range(3))
    return lines >= _ENOUGH_LINES and squares > 0 and total < _CLEARLY * math.sqrt(squares)


def find_shift(windows: Sequence[AlignmentWindow]) -> LineShift | None:
    """The first stretch of windows, in the order of their lines, whose evidence for a shift is beyond chance."""
    enough = math.log(max(1, len(windows)) * len(SHIFTS) / _SOUND_ACCUSED)
    stretches = [
        (*_best_stretch([window.evidence[column] for window in windows]), lines) for column, lines in enumerate(SHIFTS)
    ]
    found: list[tuple[int, int, int]] = []
    # Where long and short lines take turns, every second wrong shift beats having none: the right one beats it more.
    for evidence, first, last, lines in sorted(stretches, reverse=True):
        if evidence > enough and all(first + last < 2 * start or 2 * end < first + last for start, end, _ in found):
            found.append((first, last, lines))
    if not found:
        return None
    # Mending the first shift also moves the lines after it, so that is the one to tell of.
    first, last, lines = min(found)
    end = last == len(windows) - 1
    return LineShift(windows[first].first_line, windows[last].last_line, lines, reaches_end=end)


def describe(shift: LineShift, source: Path, target: Path) -> str:
    """One line for the user: which lines do not belong together, and what to do."""
    extra, short = (target, source) if shift.lines > 0 else (source, target)
    stretch = f"from about line {shift.first_line} " + ("on" if shift.reaches_end else f"to {shift.last_line}")
    missing = "a line is" if abs(shift.lines) == 1 else f"{abs(shift.lines)} lines are"
    return (
        f"{source} and {target} are out of step: {stretch}, line N of the first translates line N{shift.lines:+d} of "
        f"the second; before that {missing} missing in {short} or too many in {extra}: mend it, or get both files anew"
    )


def _around(source: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Per source line, but the first and last few, and shift: what belongs to it, and to the target line there."""
    inner = np.arange(MOST_SHIFT, len(source) - MOST_SHIFT)
    return source[inner][:, None], target[inner[:, None] + np.arange(-MOST_SHIFT, MOST_SHIFT + 1)]


def _shared_words(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """Share of rare words that each two lines have in common, from 0 to 1; a word on every line counts nothing."""
    words = [[{word[:_STEM] for word in _TOKEN.findall(line.lower())} for line in side] for side in (sources, targets)]
    common = sorted(set().union(*words[0]) & set().union(*words[1]))
    column = {word: number for number, word in enumerate(common)}
    source_has, target_has = (_presence(side, column) for side in words)
    weight = np.log(2 * len(sources) / (source_has.sum(axis=0) + target_has.sum(axis=0)))
    # One more than they have, so that a single common word shared by short lines is not yet full likeness.
    source_total, target_total = _around(source_has @ weight + 1, target_has @ weight + 1)
    own, others = _around(source_has * weight, target_has)
    # Not a product of matrices: that would wake the threads of a linear algebra library in every worker.
    shared: Floats = np.einsum("isw,isw->is", np.broadcast_to(own, others.shape), others)
    return shared / np.sqrt(source_total * target_total)


def _presence(lines: Sequence[set[str]], column: Mapping[str, int]) -> Floats:
    """One row a line, one column a word: 1 where the line has it."""
    has = np.zeros((len(lines), len(column)))
    for row, words in enumerate(lines):
        has[row, [column[word] for word in words if word in column]] = 1
    return has


def _closeness(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """How near each two lines are in length, from -1 to 0, when one language as a whole is wordier."""
    lengths = [np.log([len(line) + _SHORT for line in side]) for side in (sources, targets)]
    source, target = _around(*(length - np.median(length) for length in lengths))
    return -np.minimum(np.abs(source - target), _FARTHEST)


def _same_marks(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """Whether each two lines end in the same mark, or both in none."""
    source, target = _around(*(np.array([_final_mark(line) for line in side]) for side in (sources, targets)))
    return np.where(source == target, _MARK_WEIGHT, 0.0)


def _final_mark(line: str) -> float:
    last = normalize("NFKC", line.rstrip(_CLOSERS)[-1:])[-1:]
    return _MARK_NUMBERS[_MARKS[last]] if last in _MARKS else _NO_MARK


def _best_stretch(gains: Sequence[float]) -> tuple[float, int, int]:
    """The largest sum of at least a few neighbours, and the first and last of them."""
    sums = np.concatenate(([0.0], np.cumsum(gains)))
    best = (-math.inf, 0, 0)
    lowest = 0
    for end in range(_FEWEST_WINDOWS, len(sums)):
        start = end - _FEWEST_WINDOWS
        lowest = start if sums[start] < sums[lowest] else lowest
        best = max(best, (float(sums[end] - sums[lowest]), lowest, end - 1))
    return best
