"""Tells whether a sentence is clearly in another language than it should be."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from tandem.errors import TandemError

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Below some four words names and loan words decide. With these, one of 100,000 sentences of Tatoeba and Multi30k is
# taken for another language, and rightly so; of those that are long enough, 97 to 99 % are noticed on the other side.
_FEWEST_CHARACTERS = 20
_CLEAR_PROBABILITY = 0.5
# Near relatives (Croatian and Bosnian, Danish and Norwegian) share the probability between them: a language that is
# at all likely to be the right one is not clearly another.
_CLEAR_LEAD = 10
# The beginning of a long line decides as well as all of it.
_MOST_CHARACTERS = 200

# What numbers, addresses and program text are taken for, which a translation often keeps.
_NO_LANGUAGE = "zxx"


class ExpectedLanguages:
    """Knows which language each side should be in."""

    def __init__(self, languages: tuple[str, str]) -> None:
        self._model = _load()
        known = set(self._model.labels) - {_NO_LANGUAGE}
        # A region or script, as in de-AT or zh_Hans, is finer than what can be told apart.
        self._languages = tuple(re.split("[-_]", language)[0].lower() for language in languages)
        for language, code in zip(languages, self._languages, strict=True):
            if code not in known:
                raise TandemError(
                    f"identify_languages: {language} is not a language that can be identified "
                    "(codes of two letters, such as en and de, mostly can); give --languages, or switch it off"
                )

    def is_other(self, sentence: str, side: int) -> bool:
        """Whether a sentence of the source (0) or the target (1) is clearly not in that side's language."""
        if len(sentence) < _FEWEST_CHARACTERS:
            return False
        start, own = sentence[:_MOST_CHARACTERS], self._languages[side]
        language, probability = self._model.classify(start)
        if language in (own, _NO_LANGUAGE) or probability < _CLEAR_PROBABILITY:
            return False
        return bool(probability > _CLEAR_LEAD * dict(self._model.rank(start))[own])


def language_of_sentence(sentence: str) -> str:
    """The code of the language that a sentence most likely is in."""
    return str(_load().classify(sentence[:_MOST_CHARACTERS])[0])


@cache
def _load() -> LanguageIdentifier:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise TandemError(
            "identify_languages: the library that identifies languages is not installed; "
            "install it with `pip install 'tandem-nmt[languages]'`, or switch identify_languages off"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_probabilities(text: str) -> dict[str, float] | None:
    """How likely a text is in each language, by its code; None if the library is not installed."""
    try:
        model = _load()
    except TandemError:
        return None
    return {str(language): float(probability) for language, probability in model.rank(text)}
