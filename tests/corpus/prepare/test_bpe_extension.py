"""A vocabulary that goes on learning: old numbers stay, new pieces are reached, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.corpus.prepare.bpe_extension import learn_more_pieces
from tandem.corpus.prepare.word_encoder import WordEncoder
from tandem.corpus.tokenizer import SPACE_MARK, Tokenizer, train_tokenizer
from tandem.exporting.huggingface_tokenizer import fast_tokenizer
from tandem.vocabulary import EOS, FIRST_LEARNT
from tests.corpus.prepare.test_word_encoder import WORDS, pieces

NEW = {
    "cathedral": 7,
    "the": 5,
    "cats": 4,
    "Kathedrale": 6,
    "œuvre": 3,
    "œuvres": 3,
    "12.50": 4,
    "teacat": 2,
    "тест": 1,
}
MORE = 30


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(WORDS, vocab_size=300, model_path=tmp_path_factory.mktemp("model") / "tokenizer.model")


@pytest.fixture(scope="module")
def learnt(old: Tokenizer) -> list[str]:
    return learn_more_pieces(NEW, old, MORE)


@pytest.fixture(scope="module")
def new(old: Tokenizer, learnt: list[str]) -> Tokenizer:
    return old.extended(learnt)


def test_old_pieces_keep_their_numbers(old: Tokenizer, learnt: list[str], new: Tokenizer) -> None:
    assert new.vocab_size == old.vocab_size + len(learnt) <= old.vocab_size + MORE
    assert new.pieces() == [*old.pieces(), *learnt]
    assert new.extends(old)
    assert not old.extends(new)


def test_new_text_is_shorter_and_old_words_stay_as_they_were(old: Tokenizer, new: Tokenizer) -> None:
    for word in ("cathedral", "Kathedrale", "œuvres"):
        [before], [after] = old.encode([word]), new.encode([word])
        assert len(after) < len(before)
    assert new.encode(["die Katze sieht grüne Schuhe."]) == old.encode(["die Katze sieht grüne Schuhe."])


def test_characters_come_first_and_every_piece_is_reached(learnt: list[str], new: Tokenizer) -> None:
    characters = [piece for piece in learnt if len(piece) == 1]
    assert learnt[: len(characters)] == characters
    assert {"œ", "v"} <= set(characters)
    numbers = range(new.vocab_size - len(learnt), new.vocab_size)
    assert new.split(learnt) == [[number] for number in numbers]


def test_a_piece_is_split_as_the_old_vocabulary_would(old: Tokenizer, learnt: list[str]) -> None:
    names = old.pieces()
    split = dict(zip(learnt, old.split(learnt), strict=True))
    assert [names[number] for number in split["œ"]] == ["<0xC5>", "<0x93>"]
    for piece, numbers in split.items():
        if min(numbers) >= FIRST_LEARNT:
            assert "".join(names[number] for number in numbers) == piece


def test_pieces_are_like_those_that_sentencepiece_learns(learnt: list[str]) -> None:
    # Neither across scripts and signs, nor across a space, nor of what was seen once.
    assert all(SPACE_MARK not in piece[1:] for piece in learnt)
    assert not [piece for piece in learnt if "." in piece and any(letter.isalpha() for letter in piece)]
    assert not [piece for piece in learnt if "тест" in piece]


def test_the_order_of_words_does_not_matter(old: Tokenizer, learnt: list[str]) -> None:
    assert learn_more_pieces(dict(reversed(NEW.items())), old, MORE) == learnt


def test_a_text_gives_what_it_has(old: Tokenizer) -> None:
    assert learn_more_pieces({"the": 9}, old, 50) == []
    assert learn_more_pieces({}, old, 50) == []
    assert old.extended([]).pieces() == old.pieces()


def test_learning_goes_on_from_an_extended_vocabulary(old: Tokenizer) -> None:
    """Extended twice: the second time learns from what the first one makes of words."""
    first = old.extended(learn_more_pieces(NEW, old, 16))
    merges = [piece for piece in learn_more_pieces(NEW, first, 8) if len(piece) > 1]
    assert first.extended(merges).split(merges) == [[first.vocab_size + place] for place in range(len(merges))]


@given(st.text(st.characters(codec="utf-8")) | st.sampled_from(list(NEW)))
@example(f"a{SPACE_MARK}cathedral œuvre тест 12.50")
def test_any_text_comes_back_as_from_the_old_one(old: Tokenizer, new: Tokenizer, text: str) -> None:
    assert new.decode(new.encode([text])) == old.decode(old.encode([text]))


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.sampled_from([*WORDS, *NEW]), min_size=1))
@example([f" {SPACE_MARK}the{SPACE_MARK} cathedral", "cathedral  œuvre ", "a\0b cats"])
def test_word_by_word_gives_the_same_pieces(new: Tokenizer, sentences: list[str]) -> None:
    assert pieces(WordEncoder(new), sentences) == new.encode(sentences)


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"])) | st.sampled_from(list(NEW)))
def test_the_tokenizers_library_agrees(new: Tokenizer, text: str) -> None:
    assert fast_tokenizer(new.pieces()).encode(text).ids == [*new.encode([text])[0], EOS]
