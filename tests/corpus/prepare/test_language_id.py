"""Language identification: sentences clearly in another language, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tandem.corpus.prepare.language_id import ExpectedLanguages, language_of_sentence
from tandem.errors import TandemError
from tests.places import CORPORA

pytestmark = pytest.mark.slow

MISSING = """
import sys
sys.modules["py3langid"] = sys.modules["py3langid.langid"] = None
from tandem.corpus.prepare.language_id import ExpectedLanguages
from tandem.errors import TandemError
try:
    ExpectedLanguages(("en", "de"))
except TandemError as error:
    print(error)
"""


def test_the_error_without_the_library_names_the_extra() -> None:
    told = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True).stdout
    assert "pip install 'tandem-nmt[languages]'" in told


@pytest.fixture(scope="module")
def identifier() -> ExpectedLanguages:
    pytest.importorskip("py3langid", reason="the extra `languages` is not installed")
    return ExpectedLanguages(("en_GB", "de-AT"))


@pytest.mark.parametrize(
    ("sentence", "is_english", "is_german"),
    [
        ("The committee will meet again on Thursday.", True, False),
        ("Der Ausschuss tritt am Donnerstag wieder zusammen.", False, True),
        ("La commission se réunira de nouveau jeudi.", False, False),
        ("Комитет снова соберётся в четверг.", False, False),
        ("委員会は木曜日に再び開かれる予定です。皆様のご参加をお待ちしております。", False, False),
    ],
)
def test_clear_sentences(identifier: ExpectedLanguages, sentence: str, is_english: bool, is_german: bool) -> None:
    assert (not identifier.is_other(sentence, 0), not identifier.is_other(sentence, 1)) == (is_english, is_german)


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "Merci.",
        "Angela Merkel, Emmanuel Macron",
        "12.03.1999 (A4-0012/99), 17:45",
        "https://www.example.com/a/b.html",
    ],
)
def test_what_says_little_is_in_no_other_language(identifier: ExpectedLanguages, sentence: str) -> None:
    assert not identifier.is_other(sentence, 0)
    assert not identifier.is_other(sentence, 1)


def test_near_relatives_are_not_clearly_other_languages() -> None:
    pytest.importorskip("py3langid", reason="the extra `languages` is not installed")
    croatian = "Danas je lijep dan i idemo u grad kupiti kruh."
    assert not ExpectedLanguages(("hr", "en")).is_other(croatian, 0)
    assert not ExpectedLanguages(("bs", "en")).is_other(croatian, 0)
    assert ExpectedLanguages(("pl", "en")).is_other(croatian, 0)


@pytest.mark.parametrize("languages", [("en", "tlh"), ("xx", "de"), ("zxx", "de"), ("src", "ref")])
def test_unknown_languages_are_refused(languages: tuple[str, str]) -> None:
    pytest.importorskip("py3langid", reason="the extra `languages` is not installed")
    with pytest.raises(TandemError, match="is not a language that can be identified"):
        ExpectedLanguages(languages)


def test_a_sentence_has_a_language() -> None:
    pytest.importorskip("py3langid", reason="the extra `languages` is not installed")
    assert language_of_sentence("La commission se réunira de nouveau jeudi.") == "fr"


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the real corpora in ../shared/corpora are not here")
@pytest.mark.parametrize("stem", ["tatoeba/tatoeba", "multi30k/train"])
def test_real_sentences(identifier: ExpectedLanguages, stem: str) -> None:
    for side, language in enumerate(("en", "de")):
        sentences = (CORPORA / f"{stem}.{language}").read_text(encoding="utf-8").split("\n")[:-1]
        sample = sentences[:: len(sentences) // 1000]
        long = [sentence for sentence in sample if len(sentence) >= 30]
        assert sum(identifier.is_other(sentence, side) for sentence in sample) <= 0.005 * len(sample)
        assert sum(identifier.is_other(sentence, 1 - side) for sentence in long) >= 0.95 * len(long)
