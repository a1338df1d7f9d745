"""Repetition loops, in which a decoder says the same few pieces again and again until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

# Pieces that a loop repeats, at most: a loop of whole clauses was not seen.
LONGEST_LOOP = 12
# Repetitions in a row that people do not write, unless the source has them too ("ha ha ha ha").
MOST_REPETITIONS = 3


def without_loop(ids: Sequence[int], source: Sequence[int]) -> list[int]:
    """A translation whose end is no loop: what the end repeats stands there once, or as often as in the source."""
    for period in range(1, LONGEST_LOOP + 1):
        repeated = _repetitions(_last_run(ids, period), ids, period)
        if repeated <= MOST_REPETITIONS:
            continue
        spoken = _repetitions(_longest_run(source, period), source, period)
        if repeated > spoken + MOST_REPETITIONS:
            return list(ids[: len(ids) - period * (repeated - max(spoken, 1))])
    return list(ids)


def _repetitions(run: int, ids: Sequence[int], period: int) -> int:
    """How often some pieces stand in a row, by how many equal those a period before them."""
    return run // period + 1 if len(ids) >= period else 0


def _last_run(ids: Sequence[int], period: int) -> int:
    """How many pieces at the end equal those a period before them."""
    equal = (ids[place] == ids[place - period] for place in range(len(ids) - 1, period - 1, -1))
    return sum(1 for _ in takewhile(bool, equal))


def _longest_run(ids: Sequence[int], period: int) -> int:
    """How many pieces in a row equal those a period before them, at most."""
    longest = run = 0
    for piece, before in zip(ids[period:], ids, strict=False):
        run = run + 1 if piece == before else 0
        longest = max(longest, run)
    return longest
