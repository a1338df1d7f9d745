"""A trained Transformer as a CTranslate2 model: weights, vocabulary and settings in CTranslate2's own files.

CTranslate2 knows our layers (pre-norm, ReLU, final norms, embeddings scaled by the root of the width). Its own position
signal begins with position 1 where ours begins with 0, so ours is stored as a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.model.layers import CrossAttention, FeedForward, SelfAttention
from tandem.model.transformer import DecoderLayer, EncoderLayer, Transformer, sinusoids
from tandem.model.translation_model import TranslationModel
from tandem.vocabulary import BOS, EOS, PAD, UNK

CTRANSLATE2_FILES = ("model.bin", "config.json", "shared_vocabulary.json")
# CTranslate2 cuts input at 1,024 tokens by default, and dies where the table has no position for one of them.
POSITIONS = 1024 + 1
# Added to the logits of what no translation has in it; large enough to rule it out, small enough for float16.
NEVER = -1e4


def write_ctranslate2(model: TranslationModel, tokenizer: Tokenizer, folder: Path, quantization: str) -> None:
    """Write the model into an existing folder; `quantization` is float32, float16 or int8."""
    from ctranslate2.specs import TransformerSpec

    transformer = as_transformer(model)
    layers = (len(transformer.encoder), len(transformer.decoder))
    # The attention that CTranslate2 returns: all heads of the last layer but one, whose links between words are nearer
    # to a statistical aligner's than those of the first head of the last layer, the default.
    spec = TransformerSpec.from_config(
        layers,
        transformer.config.heads,
        pre_norm=True,
        alignment_layer=-2 if layers[1] > 1 else -1,
        alignment_heads=0,
    )
    # Rows that only pad the matrix for speed are no pieces.
    embedding_VD = _array(transformer.embedding.weight)[: tokenizer.vocab_size]
    positions = sinusoids(max(POSITIONS, transformer.config.max_length + 1), transformer.config.d_model).numpy()
    for part in (spec.encoder, spec.decoder):
        part.scale_embeddings = True
        part.position_encodings.encodings = positions
    spec.encoder.embeddings[0].weight = embedding_VD
    spec.decoder.embeddings.weight = embedding_VD
    spec.decoder.projection.weight = embedding_VD
    spec.decoder.projection.bias = forbidden_bias(tokenizer.vocab_size)
    _set_norm(spec.encoder.layer_norm, transformer.encoder_norm)
    _set_norm(spec.decoder.layer_norm, transformer.decoder_norm)
    for target, layer in zip(spec.encoder.layer, transformer.encoder, strict=True):
        _set_encoder_layer(target, layer)
    for target, layer in zip(spec.decoder.layer, transformer.decoder, strict=True):
        _set_decoder_layer(target, layer)
    pieces = tokenizer.pieces()
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token = pieces[BOS]
    spec.config.eos_token, spec.config.unk_token = pieces[EOS], pieces[UNK]
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))


def as_transformer(model: TranslationModel) -> Transformer:
    """The model, if it is of the only shape that other programs know."""
    if not isinstance(model, Transformer):
        raise TandemError(
            f"model.kind {model.config.kind}: only the Transformer can be put into another program's form; "
            "translate with --engine tandem"
        )
    return model


def forbidden_bias(vocab_size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What is added to the logits so that padding and the sentence's beginning are never chosen, by any program."""
    bias = np.zeros(vocab_size, dtype=np.float32)
    bias[[PAD, BOS]] = NEVER
    return bias


def _set_encoder_layer(target: Any, layer: nn.Module) -> None:
    assert isinstance(layer, EncoderLayer)
    _set_self_attention(target.self_attention, layer.attention_norm, layer.attention)
    _set_feed_forward(target.ffn, layer.feed_forward_norm, layer.feed_forward)


def _set_decoder_layer(target: Any, layer: nn.Module) -> None:
    assert isinstance(layer, DecoderLayer)
    _set_self_attention(target.self_attention, layer.attention_norm, layer.attention)
    _set_cross_attention(target.attention, layer.cross_attention_norm, layer.cross_attention)
    _set_feed_forward(target.ffn, layer.feed_forward_norm, layer.feed_forward)


def _set_self_attention(target: Any, norm: nn.LayerNorm, attention: SelfAttention) -> None:
    _set_norm(target.layer_norm, norm)
    _set_linear(target.linear[0], attention.query_key_value)
    _set_linear(target.linear[1], attention.output)


def _set_cross_attention(target: Any, norm: nn.LayerNorm, attention: CrossAttention) -> None:
    _set_norm(target.layer_norm, norm)
    _set_linear(target.linear[0], attention.query)
    _set_linear(target.linear[1], attention.key_value)
    _set_linear(target.linear[2], attention.output)


def _set_feed_forward(target: Any, norm: nn.LayerNorm, block: FeedForward) -> None:
    _set_norm(target.layer_norm, norm)
    _set_linear(target.linear_0, block.inner)
    _set_linear(target.linear_1, block.output)


def _set_linear(target: Any, linear: nn.Linear) -> None:
    target.weight, target.bias = _array(linear.weight), _array(linear.bias)


def _set_norm(target: Any, norm: nn.LayerNorm) -> None:
    target.gamma, target.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    # A copy: CTranslate2 quantizes in place, which must not reach the model's own memory.
    values: np.ndarray[Any, np.dtype[np.float32]] = tensor.detach().float().cpu().numpy().copy()
    return values
