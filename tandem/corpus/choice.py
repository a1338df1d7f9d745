"""Which texts a prepare works on: files that the user names, or a corpus that is known by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.corpus.catalog import find_corpus
from tandem.corpus.obtain import default_cache, obtain
from tandem.corpus.progress import Progress
from tandem.corpus.text import Files
from tandem.errors import TandemError


@dataclass(frozen=True)
class Texts:
    """The files of each split; without languages their names tell them."""

    train: Sequence[Files]
    dev: Files
    test: Files | None
    languages: tuple[str, str] | None
    origins: Mapping[Path, str]
    """Where a file came from, if that is more than its name."""


def named_texts(
    train: Sequence[Files], dev: Files | None, test: Files | None, languages: tuple[str, str] | None
) -> Texts:
    """The files that the user names."""
    if not train or dev is None:
        missing = "--train" if not train else "--dev"
        raise TandemError(f"{missing} is missing; give --train and --dev, or a known corpus with --from")
    return Texts(train, dev, test, languages, {})


def known_texts(corpus: str, cache: Path | None, offline: Path | None, progress: Progress) -> Texts:
    """The files of a corpus of the catalog, or of a YAML file, fetched if they are not here."""
    obtained = obtain(*find_corpus(corpus), cache or default_cache(), offline=offline, progress=progress)
    return Texts(obtained.train, obtained.dev, obtained.test, obtained.languages, obtained.origins)
