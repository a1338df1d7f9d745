"""Duplicates are found wherever they stand, and only they."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.prepare import duplicates as module
from tandem.corpus.prepare.duplicates import PairDigests, count_among, find_duplicates, lines_in_chunk
from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.progress import no_progress

Lines = list[tuple[str, str] | None]


def found_in(directory: Path, chunks: list[Lines]) -> list[list[int]]:
    """The lines of each chunk that are duplicates; None stands for a line that was dropped before."""
    stages = StageRunner(ResumeLog(directory, {}), no_progress)
    inside: list[list[int]] = []
    for number, lines in enumerate(chunks):
        digests = PairDigests()
        inside.append([line for line, pair in enumerate(lines) if pair is not None and not digests.add(line, *pair)])
        digests.write(stages.chunk_file("digests", number))
    pairs = sum(pair is not None for lines in chunks for pair in lines)
    found = find_duplicates(len(chunks), pairs, stages)
    return [sorted(lines_in_chunk(found, number).tolist() + within) for number, within in enumerate(inside)]


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.none() | st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=8),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 12),
)
def test_the_first_of_equal_pairs_is_no_duplicate(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[Lines], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_ONCE", at_once)
        found = found_in(tmp_path_factory.mktemp("digests"), chunks)
    seen: set[tuple[str, str]] = set()
    for lines, duplicates in zip(chunks, found, strict=True):
        expected = []
        for number, pair in enumerate(lines):
            if pair in seen:
                expected.append(number)
            elif pair is not None:
                seen.add(pair)
        assert duplicates == expected


def test_the_border_between_the_sides_counts(tmp_path: Path) -> None:
    assert found_in(tmp_path, [[("ab", "c"), ("a", "bc"), ("ab", "c")]]) == [[2]]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=12), st.integers(1, 4)
)
def test_pairs_are_found_among_others(
    tmp_path_factory: pytest.TempPathFactory, others: list[tuple[str, str]], size: int
) -> None:
    directory = tmp_path_factory.mktemp("digests")
    found_in(directory, [[*others[start : start + size]] for start in range(0, len(others), size)])
    files = sorted(directory.glob("work/digests/*.npy"))
    asked = [("a", "a"), ("b", "c"), ("a", "a"), ("x", "y")]
    encoded = [(source.encode(), target.encode()) for source, target in asked]
    assert count_among(encoded, files) == sum(pair in others for pair in asked)
    assert count_among([], files) == 0
