"""Memory by arithmetic: a case worked out by hand, the model's own shapes, and what must grow with what."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tandem.config import Config, ModelConfig
from tandem.model import layers, transformer
from tandem.model.memory_estimate import (
    BUCKET_BYTES,
    CONTEXT_BYTES,
    MOST_SEARCH_SENTENCES,
    TOKENS_STEP,
    USABLE_SHARE,
    MemoryEstimate,
    estimate_memory,
    largest_search_batch,
    largest_tokens,
    layer_parameters,
    padded_vocabulary,
)
from tandem.model.transformer import Transformer

GB = 10**9
# Two heads of width 2; 448 weights in the layers and norms, and 16 rows of 4 in the embedding of 10 pieces.
SMALL = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=4, heads=2, d_ff=8, max_length=16)
BASE = Config.load("transformer-base")
MODELS = st.builds(
    ModelConfig,
    encoder_layers=st.integers(1, 12),
    decoder_layers=st.integers(1, 12),
    d_model=st.sampled_from([64, 128, 512, 1024]),
    heads=st.sampled_from([1, 4, 16]),
    d_ff=st.sampled_from([64, 1000, 4096]),
    dropout=st.sampled_from([0.0, 0.1]),
    activation_dropout=st.sampled_from([0.0, 0.1]),
)


def test_a_small_case_by_hand() -> None:
    # Three positions: tensors of 12 values, and of 24 inside the feed-forward blocks; three attentions, seven norms.
    found = estimate_memory(SMALL, vocab_size=10, tokens=3, precision="bfloat16")
    assert found == MemoryEstimate(
        weights=512 * 4,
        working_copy=512 * 2,
        gradient=512 * 4,
        optimizer=2 * 512 * 4,
        # Seven norms' outputs, three attentions' outputs, the gathered states with their gradient; ids of both sides.
        linear_inputs=(12 * 12 + 2 * 24) * 2 + 2 * 3 * 8,
        # Queries, keys, values and output, and a float32 for each head and position.
        attention=3 * (4 * 12 * 2 + 3 * 2 * 4),
        norms=7 * (12 * 2 + 2 * 3 * 4),
        relus=2 * 24 * 2,
        # After five blocks and two embeddings, and inside two feed-forward blocks.
        dropout_masks=7 * 12 + 2 * 24,
        activation_gradients=2 * 24 * 2 + 4 * 12 * 2,
        logits=3 * 16 * (2 + 4 + 2) + 2 * 64 * 4,
        gradients_in_flight=2 * (BUCKET_BYTES // 4) * 2 + 3 * 64 * 4,
        exchange_buffers=0,
        context=CONTEXT_BYTES,
    )
    assert found.activations == 432 + 360 + 336 + 96 + 132
    assert found.total == sum(bytes for name, bytes in found.as_dict().items() if name not in ("activations", "total"))


def test_float32_needs_no_copy_but_twice_the_activations() -> None:
    half, full = (estimate_memory(SMALL, 10, 3, precision) for precision in ("float16", "float32"))
    assert full.working_copy == 0
    assert full.relus == 2 * half.relus
    assert full.dropout_masks == half.dropout_masks
    assert full.logits == 3 * 16 * 8 + 2 * 64 * 4


def test_without_dropout_there_are_no_masks() -> None:
    still = SMALL.model_copy(update={"dropout": 0.0, "activation_dropout": 0.0})
    found = estimate_memory(still, 10, 3, "bfloat16")
    # The ReLU's result is then the next linear map's input, which is counted once.
    assert (found.dropout_masks, found.relus) == (0, 0)


def test_vectors_of_the_exchange_come_on_top() -> None:
    one, three = (estimate_memory(SMALL, 10, 3, "bfloat16", exchange_vectors=count) for count in (0, 3))
    assert three.total - one.total == three.exchange_buffers == 3 * 512 * 4


@pytest.mark.parametrize("preset", ["demo", "small", "transformer-base", "transformer-big"])
def test_the_model_has_as_many_weights(preset: str) -> None:
    config = Config.load(preset).model
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in Transformer(config, 8_001).parameters())
    assert layer_parameters(config) + padded_vocabulary(8_001) * config.d_model == weights


@given(MODELS, st.integers(1, 100_000), st.sampled_from(["auto", "float32", "bfloat16", "float16"]))
def test_more_of_anything_needs_more(model: ModelConfig, tokens: int, precision: str) -> None:
    total = estimate_memory(model, 8_000, tokens, precision).total
    assert estimate_memory(model, 8_000, tokens + 1, precision).total > total
    assert estimate_memory(model, 8_008, tokens, precision).total > total
    larger = model.model_copy(update={"decoder_layers": model.decoder_layers + 1})
    assert estimate_memory(larger, 8_000, tokens, precision).total > total


@given(st.integers(1, 200))
def test_the_largest_micro_batch_fits_and_the_next_does_not(gigabytes: int) -> None:
    tokens = largest_tokens(BASE, 32_000, gigabytes * GB)
    assert tokens % TOKENS_STEP == 0
    for larger, fits in ((0, True), (TOKENS_STEP, False)):
        if tokens + larger:
            needed = estimate_memory(BASE.model, 32_000, tokens + larger, BASE.train.precision).total
            assert (needed <= USABLE_SHARE * gigabytes * GB) == fits


def test_a_card_too_small_for_any_micro_batch() -> None:
    assert largest_tokens(BASE, 32_000, 1 * GB) == 0


def test_a_beam_search_takes_what_memory_is_left() -> None:
    # A decoder layer's keys and values and a copy of them, the source's, the encoder's tensors, logits and ids.
    sentence = (2 * 2 * 3 * 16 * 4 + 2 * 16 * 4 + 16 * (2 * 4 + 2 * 8) + 3 * 3 * 16) * 4 + 2 * 2 * 3 * 16 * 8
    assert largest_search_batch(SMALL, 10, beam=3, memory_bytes=round(7.5 * sentence / USABLE_SHARE)) == 7
    assert largest_search_batch(SMALL, 10, beam=3, memory_bytes=0) == 1
    assert largest_search_batch(SMALL, 10, beam=3, memory_bytes=80 * GB) == MOST_SEARCH_SENTENCES
    base = [largest_search_batch(BASE.model, 32_000, beam, 16 * GB) for beam in (1, 4, 16)]
    assert base == sorted(base, reverse=True)
    assert base[1] > 64


class FlashAttention(torch.autograd.Function):
    """Keeps for backward what Flash attention keeps, and computes nothing."""

    @staticmethod
    def forward(ctx: Any, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> Tensor:
        batch, heads, positions, width = q_BHTK.shape
        out_BHTK = q_BHTK.new_empty(batch, positions, heads, width).transpose(1, 2)
        ctx.save_for_backward(q_BHTK, k_BHSK, v_BHSK, out_BHTK, q_BHTK.new_empty(q_BHTK.shape[:3], dtype=torch.float32))
        return out_BHTK


def _dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    return torch.native_dropout(x, rate, training)[0] if rate else x


@pytest.mark.parametrize("preset", ["demo", "small", "transformer-base", "transformer-big"])
def test_autograd_keeps_as_much_or_a_little_less(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in a forward pass on the meta device, with a GPU's attention and dropout in the CPU's place."""
    monkeypatch.setattr(layers, "attend", lambda q, k, v, **_: FlashAttention.apply(q, k, v))
    for module in (layers, transformer):
        monkeypatch.setattr(module, "dropout", _dropout)
    monkeypatch.setattr(transformer, "add_dropout", lambda x, change, *rate: x + _dropout(change, *rate))
    monkeypatch.setattr(layers, "relu_dropout", lambda x, *rate: _dropout(F.relu(x), *rate))
    config, kept = Config.load(preset).model, {}
    with torch.device("meta"):
        model = Transformer(config, 8_000).to(torch.bfloat16)
        ids = torch.empty(128, 64, dtype=torch.int64)
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in weights:
                kept[storage._cdata] = (storage.nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden = model(ids, ids.clone(), source_padded=True)
    # The loss keeps the states and their gradient.
    counted = sum(size for size, _ in kept.values()) + 2 * hidden.nbytes
    estimated = estimate_memory(config, 8_000, ids.numel(), "bfloat16").activations
    assert counted <= estimated <= 1.12 * counted
