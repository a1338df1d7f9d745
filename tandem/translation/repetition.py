"""Repetition loops, in which a decoder says the same few pieces again and again until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence

# Pieces that a loop repeats, at most: a loop of whole clauses was not seen.
LONGEST_LOOP = 12
# Repetitions in a row that people do not write, unless the source has them too ("ha ha ha ha").
MOST_REPETITIONS = 3


def without_loop(ids: Sequence[int], source: Sequence[int]) -> list[int]:
    """A translation whose end is no loop: what the end repeats stands there once, or as often as in the source."""
    for period in range(1, LONGEST_LOOP + 1):
        repeated = _repetitions(ids, len(ids), period)
        if repeated <= MOST_REPETITIONS:
            continue
        spoken = max((_repetitions(source, end, period) for end in range(len(source) + 1)), default=1)
        if repeated > spoken + MOST_REPETITIONS:
            return list(ids[: len(ids) - period * (repeated - max(spoken, 1))])
    return list(ids)


def _repetitions(ids: Sequence[int], end: int, period: int) -> int:
    """How often the `period` pieces before `end` stand there in a row."""
    count, last = 0, ids[end - period : end]
    while len(last) == period and ids[end - period * (count + 1) : end - period * count] == last:
        count += 1
        if end - period * (count + 1) < 0:
            break
    return count
