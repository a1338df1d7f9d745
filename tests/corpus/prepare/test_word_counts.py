"""The sample that a vocabulary is learnt from: even, and the same whoever counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.prepare import word_counts as module
from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.scan import Chunk, ScannedPair, scan
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.prepare.word_counts import count_sampled_words
from tandem.corpus.progress import no_progress
from tandem.corpus.shards import write_array

Pairs = list[tuple[str, str]]
WritePair = Callable[[str, Pairs], tuple[Path, Path]]


def counted(write_pair: WritePair, tmp_path: Path, texts: list[Pairs], dropped: set[str]) -> Mapping[str, int]:
    """The words of texts, each a chunk, of which the pairs with some sources are dropped."""
    stages = StageRunner(ResumeLog(tmp_path, {}), no_progress)
    chunks = []
    for number, pairs in enumerate(texts):
        files = write_pair(f"text-{number}", pairs)
        source, target = (scan(path, tmp_path / "unpacked", lambda count: None) for path in files)
        verdicts = np.array([pair[0] in dropped for pair in pairs], dtype=np.uint8)
        write_array(stages.chunk_file("verdicts", number), verdicts)
        chunks.append((Chunk(number, ScannedPair(source, target), 0), int((verdicts == 0).sum())))
    return count_sampled_words(chunks, stages)


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
    # Of 11 kept pairs every third; words seen once would be left out.
    text = [(f"s{number} s{number}", f"t{number} t{number} once{number}") for number in range(12)]
    expected = {f"{side}{number}" for side in "st" for number in (0, 3, 7, 10)}
    assert set(counted(write_pair, tmp_path, [text[:cut], text[cut:]], {"s5 s5"})) == expected
