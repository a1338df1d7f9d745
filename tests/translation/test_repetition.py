"""Loops at the end of a translation are cut, repetitions that the source has are kept."""

from __future__ import annotations

import pytest

from tandem.translation.repetition import without_loop


@pytest.mark.parametrize(
    ("ids", "source", "expected"),
    [
        ([], [], []),
        ([5, 6, 7], [1, 2], [5, 6, 7]),
        ([5, 6, 6, 6], [1, 2], [5, 6, 6, 6]),
        ([5, 6, 6, 6, 6, 6, 6], [1, 2], [5, 6]),
        ([4, *[7, 8] * 9], [1, 2], [4, 7, 8]),
        ([4, *[7, 8, 9] * 9, 7], [1, 2], [4, 7, 8, 9, 7]),
        ([9] * 40, [3] * 5, [9] * 5),
        ([9] * 7, [3] * 5, [9] * 7),
        ([9] * 20, [], [9]),
        ([5, *[9] * 50_000], [3] * 40_000, [5, *[9] * 40_000]),
        ([5, *[6, 7, 8] * 20_000], [1, *[2, 3, 4] * 9_000, 2, 3], [5, *[6, 7, 8] * 9_000]),
    ],
)
def test_loops(ids: list[int], source: list[int], expected: list[int]) -> None:
    assert without_loop(ids, source) == expected
