"""The sample that a vocabulary is learnt from: even, and the same whoever counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tandem.corpus import words as module
from tandem.corpus.arrays import write_array
from tandem.corpus.scan import Chunk, ScannedPair, chunks_of, scan
from tandem.corpus.words import count_chunk, counting_tasks

Pairs = list[tuple[str, str]]
WritePair = Callable[[str, Pairs], tuple[Path, Path]]


def counted(write_pair: WritePair, tmp_path: Path, texts: list[Pairs], dropped: set[str]) -> Counter[str]:
    """The words of texts, each a chunk, of which the pairs with some sources are dropped."""
    chunks = []
    for number, pairs in enumerate(texts):
        files = write_pair(f"text-{number}", pairs)
        source, target = (scan(path, tmp_path / "unpacked", lambda count: None) for path in files)
        verdicts = np.array([pair[0] in dropped for pair in pairs], dtype=np.uint8)
        write_array(tmp_path / f"{number}.npy", verdicts)
        [chunk] = chunks_of([ScannedPair(source, target)])
        chunks.append((Chunk(number, chunk.pair, 0), tmp_path / f"{number}.npy", int((verdicts == 0).sum())))
    return sum(map(count_chunk, counting_tasks(chunks)), Counter())


def test_words_of_kept_pairs_are_counted(write_pair: WritePair, tmp_path: Path) -> None:
    text = [("a  b a", "c"), ("dropped", "d"), (" a\tb ", "\u00a0e")]
    assert counted(write_pair, tmp_path, [text, [("a", "f")]], {"dropped"}) == Counter(
        {"a": 4, "b": 2, "c": 1, "\u00a0e": 1, "f": 1}
    )


@pytest.mark.parametrize("cut", [1, 4, 7, 11])
def test_the_sample_is_even_however_the_text_is_cut(
    write_pair: WritePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(module, "SAMPLE_PAIRS", 5)
    text = [(f"s{number}", f"t{number}") for number in range(12)]
    # Of 11 kept pairs every third.
    expected = {f"{side}{number}" for side in "st" for number in (0, 3, 7, 10)}
    assert set(counted(write_pair, tmp_path, [text[:cut], text[cut:]], {"s5"})) == expected
