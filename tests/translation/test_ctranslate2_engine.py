"""The CTranslate2 engine and the writing of its models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.exporting.sequence_scores import log_probabilities
from tandem.model.transformer import Transformer
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.ctranslate2_weights import write_ctranslate2


@pytest.fixture
def config(tiny_config: Callable[..., Config]) -> Config:
    return tiny_config()


@pytest.fixture
def model(tiny_corpus: PreparedCorpus, config: Config) -> Transformer:
    torch.manual_seed(5)
    return Transformer(config.model, tiny_corpus.tokenizer.vocab_size).eval()


@pytest.mark.parametrize(("quantization", "nats"), [("float32", 1e-3), ("float16", 0.1), ("int8", 2.0)])
def test_both_models_give_the_same_log_probabilities_and_ours_stays_as_it_was(
    tiny_corpus: PreparedCorpus, config: Config, model: Transformer, tmp_path: Path, quantization: str, nats: float
) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    write_ctranslate2(model, tiny_corpus.tokenizer, tmp_path, quantization)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    engine = CTranslate2Engine(
        tmp_path, tiny_corpus.tokenizer.pieces(), config.search, max_length=config.model.max_length
    )
    sources, targets = map(tiny_corpus.tokenizer.encode, tiny_corpus.text("dev"))
    theirs = engine.log_probabilities(sources, targets)
    assert theirs == pytest.approx(log_probabilities(model, sources, targets), abs=nats)


def test_a_model_of_another_vocabulary_is_refused(
    tiny_corpus: PreparedCorpus, config: Config, model: Transformer, tmp_path: Path
) -> None:
    write_ctranslate2(model, tiny_corpus.tokenizer, tmp_path, "float32")
    pieces = tiny_corpus.tokenizer.pieces()
    swapped = [*pieces[:-2], pieces[-1], pieces[-2]]
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(swapped))
    with pytest.raises(TandemError, match="a CTranslate2 model of another vocabulary than its tokenizer's"):
        CTranslate2Engine(tmp_path, pieces, config.search, max_length=config.model.max_length)


def test_a_damaged_model_is_refused(
    tiny_corpus: PreparedCorpus, config: Config, model: Transformer, tmp_path: Path
) -> None:
    write_ctranslate2(model, tiny_corpus.tokenizer, tmp_path, "float32")
    (tmp_path / "model.bin").write_bytes((tmp_path / "model.bin").read_bytes()[:1000])
    with pytest.raises(TandemError, match="not a CTranslate2 model, or damaged"):
        CTranslate2Engine(tmp_path, tiny_corpus.tokenizer.pieces(), config.search, max_length=config.model.max_length)
