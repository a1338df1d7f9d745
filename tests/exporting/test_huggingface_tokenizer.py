"""The tokenizer.json: SentencePiece's pieces and SentencePiece's text, whatever the text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.tokenizer import SPACE_MARK, Tokenizer
from tandem.exporting.huggingface_tokenizer import fast_tokenizer

# What is special to either side, with letters that merge.
ODD = st.text(alphabet=f" {SPACE_MARK}Thedogsl<>/0x4é\u4e2d\U0001f600\x00\n\t\r\u00a0\u200b.", max_size=30)


@cache
def both(path: Path) -> tuple[Tokenizer, Any]:
    ours = Tokenizer.load(path)
    theirs = fast_tokenizer(ours.pieces())
    theirs.encode_special_tokens = True  # as split_special_tokens in tokenizer_config.json
    return ours, theirs


@given(lines=st.lists(ODD | st.text(max_size=20), min_size=20, max_size=20))
def test_pieces_and_text_are_those_of_sentencepiece(tiny_corpus: PreparedCorpus, lines: list[str]) -> None:
    ours, theirs = both(tiny_corpus.directory / "tokenizer.model")
    lines = [line.encode(errors="replace").decode() for line in lines]  # neither knows lone surrogates
    pieces = ours.encode(lines)
    assert [encoding.ids[:-1] for encoding in theirs.encode_batch(lines)] == pieces
    assert theirs.decode_batch(pieces) == ours.decode(pieces)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_real_sentences_are_encoded_alike(tiny_corpus: PreparedCorpus, split: str) -> None:
    ours, theirs = both(tiny_corpus.directory / "tokenizer.model")
    for lines in tiny_corpus.text(split):
        assert [encoding.ids for encoding in theirs.encode_batch(lines)] == [[*ids, 3] for ids in ours.encode(lines)]
