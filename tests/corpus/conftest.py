"""Small English and German files on the disk for the tests of the corpus room."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

Pairs = list[tuple[str, str]]
WritePair = Callable[[str, Pairs], tuple[Path, Path]]

_SUBJECTS = (("the cat", "die Katze"), ("a dog", "ein Hund"), ("my friend", "mein Freund"), ("our boss", "unser Chef"))
_VERBS = (("sees", "sieht"), ("loves", "liebt"), ("draws", "zeichnet"), ("buys", "kauft"))
_OBJECTS = (("the tree", "den Baum"), ("green shoes", "grüne Schuhe"), ("old books", "alte Bücher"), ("tea", "Tee"))


@pytest.fixture(scope="session")
def sentences() -> Pairs:
    """64 pairs, English and German, of some twenty words each."""
    return [
        (f"{subject[0]} {verb[0]} {thing[0]}.", f"{subject[1]} {verb[1]} {thing[1]}.")
        for subject, verb, thing in product(_SUBJECTS, _VERBS, _OBJECTS)
    ]


@pytest.fixture
def write_pair(tmp_path: Path) -> WritePair:
    """Writes `stem.en` and `stem.de`."""

    def write(stem: str, pairs: Pairs) -> tuple[Path, Path]:
        paths = (tmp_path / f"{stem}.en", tmp_path / f"{stem}.de")
        for side, path in enumerate(paths):
            path.write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
        return paths

    return write


@pytest.fixture
def train(write_pair: WritePair, sentences: Pairs) -> tuple[Path, Path]:
    return write_pair("train", sentences)


@pytest.fixture
def dev(write_pair: WritePair, sentences: Pairs) -> tuple[Path, Path]:
    return write_pair("dev", sentences[5::3])


@pytest.fixture
def many(write_pair: WritePair) -> tuple[Path, Path]:
    """70,000 pairs, all different: more than one chunk."""
    return write_pair("many", [(f"the cat sees tree {n}.", f"die Katze sieht Baum {n}.") for n in range(70_000)])
