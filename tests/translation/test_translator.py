"""The translator: text in, text out, one line for one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.model.search import beam_search
from tandem.model.transformer import Transformer
from tandem.translation.repetition import without_loop
from tandem.translation.torch_engine import TorchEngine
from tandem.translation.translator import Translator


@pytest.fixture
def translator(tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config]) -> Translator:
    torch.manual_seed(5)
    config = tiny_config("search.batch_sentences=2")
    model = Transformer(config.model, tiny_corpus.tokenizer.vocab_size).eval()
    return Translator(TorchEngine(model, config.search), tiny_corpus.tokenizer, ("en", "de"))


def test_sentences_keep_their_order_whatever_their_length(translator: Translator) -> None:
    sentences = ["The old man reads a book because it is good.", "", "I sleep.", "Anna sees the red house.", "   "]
    together = translator.translate(sentences)
    assert together == [translator.translate([sentence])[0] for sentence in sentences]
    assert together[1] == together[4] == ""


def test_nothing_translates_to_nothing(translator: Translator) -> None:
    assert translator.translate([]) == []


def test_a_translation_is_the_searchs_best_detokenised(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config], translator: Translator
) -> None:
    torch.manual_seed(5)
    config = tiny_config()
    model = Transformer(config.model, tiny_corpus.tokenizer.vocab_size).eval()
    ids = tiny_corpus.tokenizer.encode(["I see a dog."])[0]
    found = beam_search(model, [ids], config.search.beam, config.search.length_penalty)
    assert translator.translate(["I see a dog."]) == tiny_corpus.tokenizer.decode([without_loop(found[0], ids)])
