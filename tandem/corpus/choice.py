"""Which texts a prepare works on: files that the user names, or a corpus that is known by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    test: Files | None = None
    languages: tuple[str, str] | None = None
    origin: str | None = None
    """The name of the corpus, if it is known by one."""
    origins: Mapping[Path, str] = field(default_factory=dict)
    """Where a file came from, if that is more than its name."""


@dataclass(frozen=True)
class Wishes:
    """What the user said about the texts."""

    corpus: str | None
    train: Sequence[Files]
    dev: Files | None
    test: Files | None
    languages: tuple[str, str] | None
    cache: Path | None
    offline: Path | None


def choose_texts(wishes: Wishes, progress: Progress) -> Texts:
    """The files that the user names, or those of the corpus that he names, fetched if they are not here."""
    if wishes.corpus is None:
        if wishes.offline or wishes.cache:
            raise TandemError("--offline and --cache are for a known corpus; name it with --from")
        if not wishes.train or wishes.dev is None:
            missing = "--train" if not wishes.train else "--dev"
            raise TandemError(f"{missing} is missing; give --train and --dev, or a known corpus with --from")
        return Texts(wishes.train, wishes.dev, wishes.test, wishes.languages)
    if wishes.train or wishes.dev or wishes.test or wishes.languages:
        raise TandemError("--from: the corpus has its own texts; leave out --train, --dev, --test and --languages")
    name, entry = find_corpus(wishes.corpus)
    found = obtain(name, entry, wishes.cache or default_cache(), offline=wishes.offline, progress=progress)
    return Texts(found.train, found.dev, found.test, found.languages, name, found.origins)
