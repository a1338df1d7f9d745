"""The joint vocabulary: nothing is lost, nothing is random, too much asked is answered."""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus import tokenizer as module
from tandem.corpus.tokenizer import SPACE_MARK, Tokenizer, default_vocab_size, train_tokenizer
from tandem.errors import TandemError
from tandem.vocabulary import BOS, EOS, PAD, UNK

_ENGLISH = (("the cat", "a dog", "my friend"), ("sees", "loves", "draws"), ("the tree.", "green shoes.", "tea."))
_GERMAN = (("die Katze", "ein Hund", "mein Freund"), ("sieht", "liebt", "mag"), ("den Baum.", "grüne Schuhe.", "Tee."))
TEXT = [" ".join(words) for words in (*product(*_ENGLISH), *product(*_GERMAN))]
WORDS = Counter(word for sentence in TEXT for word in sentence.split())


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(WORDS, vocab_size=400, model_path=tmp_path_factory.mktemp("model") / "tokenizer.model")


@pytest.mark.parametrize(
    "text",
    [
        "my friend loves green shoes.",
        "Übergrößenträger äöüß ÄÖÜẞ",
        "u\u0308 is not \u00fc, \u212b is not \u00c5",
        "½ ﬁ m² … ① \uff21\uff22 „so“",
        "\U0001f642 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "中文 ไทย עברית العربية \U00020000",
        "a\tb a\xa0b a\u3000b a\u2028b \x85 \x07 \0 \r \ufeff",
        "<s> </s> <pad> <unk> <0x41>",
        "",
    ],
)
def test_text_comes_back_unchanged(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_comes_back_save_for_runs_of_spaces(tokenizer: Tokenizer, text: str) -> None:
    [ids] = tokenizer.encode([text])
    expected = re.sub(" +", " ", text.replace(SPACE_MARK, " ")).strip(" ")
    assert tokenizer.decode([ids]) == [expected]
    assert UNK not in ids
    assert not {PAD, BOS, EOS} & set(ids)


def test_special_pieces_say_nothing(tokenizer: Tokenizer) -> None:
    [ids] = tokenizer.encode(["the cat sees tea."])
    assert tokenizer.decode([[BOS, *ids, EOS, PAD, PAD], [PAD], []]) == ["the cat sees tea.", "", ""]
    assert tokenizer.decode([]) == []
    assert tokenizer.encode([]) == []


def test_both_languages_share_pieces_and_known_words_are_short(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 400
    for sentence, ids in zip(TEXT, tokenizer.encode(TEXT), strict=True):
        assert len(ids) < len(sentence) / 2
        assert max(ids) < tokenizer.vocab_size


def test_same_text_gives_the_same_bytes_and_no_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        train_tokenizer(WORDS, vocab_size=400, model_path=tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert capfd.readouterr() == ("", "")


def test_a_small_text_gives_what_it_can_carry(tmp_path: Path) -> None:
    tokenizer = train_tokenizer({"ab": 3}, vocab_size=8000, model_path=tmp_path / "m")
    # 4 special pieces, 256 bytes, the characters ▁ a b, and merges of "▁ab".
    assert 263 < tokenizer.vocab_size < 270
    assert tokenizer.decode(tokenizer.encode(["ab ba"])) == ["ab ba"]


def test_too_small_a_vocabulary_is_refused_with_the_size_it_needs(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match=r"vocab_size 100 is too small: .*set it to more than \d{3}$") as caught:
        train_tokenizer(WORDS, vocab_size=100, model_path=tmp_path / "m")
    needed = int(str(caught.value).split()[-1])
    assert train_tokenizer(WORDS, vocab_size=needed + 1, model_path=tmp_path / "m").vocab_size == needed + 1


def test_text_without_usable_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="no word of at most 4192 bytes"):
        train_tokenizer({"x" * 5000: 1}, vocab_size=400, model_path=tmp_path / "m")


def test_words_give_the_pieces_that_sentences_give(tmp_path: Path) -> None:
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        minloglevel=2,
    )
    reference = SentencePieceProcessor(model_proto=model.getvalue())
    backwards = train_tokenizer(dict(reversed(WORDS.items())), vocab_size=400, model_path=tmp_path / "m")
    assert backwards.encode(TEXT) == reference.encode(TEXT)


def test_characters_get_pieces_unless_they_are_strays_or_too_many() -> None:
    coverage = module._character_coverage
    assert coverage(WORDS, 8000) == 1.0
    assert coverage({"a" * 999: 2000}, 8000) == 1.0
    # One stray in two million characters is left to the bytes; three are not.
    assert coverage({"a" * 999: 2000, "é": 1}, 8000) == pytest.approx(1 - 1 / 2_000_002, abs=1e-9)
    assert coverage({"a" * 999: 2000, "é": 3}, 8000) == 1.0
    # 4000 characters in 4000 pieces: half of them, though never less than SentencePiece allows.
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))
    assert coverage({many: 1}, 4000) == 0.98
    assert coverage({many: 1, many[:2000]: 200}, 4000) == pytest.approx(1 - 2000 / 404_201)


def test_stray_characters_become_bytes(tmp_path: Path) -> None:
    words = {word: 1000 * count for word, count in WORDS.items()} | {"é": 1}
    tokenizer = train_tokenizer(words, vocab_size=400, model_path=tmp_path / "m")
    assert len(tokenizer.encode(["é"])[0]) >= 2
    assert len(tokenizer.encode(["ü"])[0]) <= 2
    assert tokenizer.decode(tokenizer.encode(["é"])) == ["é"]


@pytest.mark.parametrize("content", [None, b"", b"no model at all", "cut"])
def test_a_missing_or_damaged_model_is_refused(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "tokenizer.model"
    if content == "cut":
        train_tokenizer(WORDS, vocab_size=400, model_path=path)
        path.write_bytes(path.read_bytes()[:-1000])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(TandemError, match=r"tokenizer\.model: (no such|not a SentencePiece).*tandem prepare"):
        Tokenizer.load(path)


def test_a_foreign_model_is_refused(tmp_path: Path) -> None:
    from sentencepiece import SentencePieceTrainer

    with (tmp_path / "m").open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_writer=file, vocab_size=60, model_type="bpe", minloglevel=2
        )
    with pytest.raises(TandemError, match="did not make"):
        Tokenizer.load(tmp_path / "m")


@pytest.mark.parametrize(("pairs", "expected"), [(999_999, 8000), (1_000_000, 32000)])
def test_the_default_vocabulary_grows_with_the_corpus(pairs: int, expected: int) -> None:
    assert default_vocab_size(pairs) == expected
