"""The vocabulary of another corpus or run, which a new corpus takes over as it is, or extended."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem.corpus.prepare.bpe_extension import learn_more_pieces
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import CORPUS_FILE, EXPORT_FILE, RUN_FILE, TOKENIZER_FILE
from tandem.storage import write_whole


@dataclass(frozen=True)
class OtherVocabulary:
    """A vocabulary that exists, and how many pieces it is to be extended by at most."""

    tokenizer: Tokenizer
    extend: int

    @property
    def requested(self) -> int:
        """Pieces asked for."""
        return self.tokenizer.vocab_size + self.extend

    def plan(self) -> dict[str, str | int]:
        """What the corpus depends on, so that no half-finished work with another vocabulary is continued."""
        return {"sha256": hashlib.sha256(self.tokenizer.model).hexdigest(), "extend": self.extend}

    def write(self, model_path: Path, words: Callable[[], Mapping[str, int]]) -> Tokenizer:
        """Store the vocabulary; one that is to be extended learns from the words of the new text."""
        model = self.tokenizer.model
        if self.extend:
            more = learn_more_pieces(words(), self.tokenizer, self.extend)
            model = self.tokenizer.extended(more).model
        write_whole(model_path, model)
        return Tokenizer.load(model_path)


def choose_vocabulary(place: str | Path | None, extend: int) -> OtherVocabulary | None:
    """The vocabulary of a prepared corpus or of a run; None where none was named."""
    if place is None:
        if extend:
            raise TandemError(f"--extend {extend}: extends the vocabulary of --vocabulary RUN or CORPUS; name one, too")
        return None
    place = Path(place)
    if not any((place / name).is_file() for name in (CORPUS_FILE, RUN_FILE)):
        raise TandemError(f"--vocabulary {place}: {_what_is_there(place)}; name a run or a prepared corpus")
    return OtherVocabulary(Tokenizer.load(place / TOKENIZER_FILE), extend)


def _what_is_there(place: Path) -> str:
    if not place.exists():
        return "no such directory"
    if (place / EXPORT_FILE).is_file():
        return "an exported model, which is not trained any more"
    return f"neither a run nor a prepared corpus (no {RUN_FILE}, no {CORPUS_FILE})"
