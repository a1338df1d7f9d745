"""Word by word gives what whole sentences give."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.corpus.prepare import word_encoder as module
from tandem.corpus.prepare.word_encoder import WordEncoder, word_counts
from tandem.corpus.tokenizer import SPACE_MARK, Tokenizer, train_tokenizer

WORDS = {"the": 9, "cat": 5, "sees": 4, "die": 9, "Katze": 5, "sieht": 3, "grüne": 2, "Schuhe.": 2, "tea.": 1}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(WORDS, vocab_size=300, model_path=tmp_path_factory.mktemp("model") / "tokenizer.model")


def pieces(encoder: WordEncoder, sentences: list[str]) -> list[list[int]]:
    encoded, words = encoder.encode(sentences)
    assert words == sum(len(sentence.split()) for sentence in sentences)
    assert encoded.ids.dtype == encoder.dtype
    ends = np.cumsum(encoded.lengths)
    return [encoded.ids[end - length : end].tolist() for end, length in zip(ends, encoded.lengths, strict=True)]


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.sampled_from(list(WORDS)), min_size=1))
@example(["two  spaces, and one at the end ", "", " ", "the cat", "the cat"])
@example([f" {SPACE_MARK}the{SPACE_MARK} cat", "\x000", "\x001", "a\tb\xa0c\u3000d\0e", "a b\0c", "a\0b c"])
def test_sentences_give_the_same_pieces(tokenizer: Tokenizer, sentences: list[str]) -> None:
    encoder = WordEncoder(tokenizer)
    expected = tokenizer.encode(sentences)
    assert pieces(encoder, sentences) == expected
    assert pieces(encoder, sentences[::-1]) == expected[::-1]  # now from memory


def test_a_full_memory_changes_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED_WORDS", 3)
    encoder = WordEncoder(tokenizer)
    for sentence in ("the cat sees", "die Katze sieht the cat", "grüne Schuhe. tea.", "the cat"):
        assert pieces(encoder, [sentence]) == tokenizer.encode([sentence])


@given(st.lists(st.text(st.sampled_from("ab \t\n"))))
def test_words_are_counted(lines: list[str]) -> None:
    assert word_counts(lines) == Counter(word for line in lines for word in line.split(" "))


def test_a_large_vocabulary_has_wide_numbers(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert WordEncoder(tokenizer).dtype == np.dtype("<u2")
    monkeypatch.setattr(Tokenizer, "vocab_size", 70_000)
    wide = WordEncoder(tokenizer)
    assert wide.dtype == np.dtype("<u4")
    assert pieces(wide, ["the cat"]) == tokenizer.encode(["the cat"])
