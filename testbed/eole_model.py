"""A run's weights as a model of eole, so that both programs' decoders can be compared on the same translations.

eole knows our layers: pre-norm, ReLU, biases, final norms, embeddings scaled by the root of the width, and the same
position signal, from position 0 on (`SinusoidalConcat`). A source must be given its end-of-sentence piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from tandem.config import ModelConfig
from tandem.corpus.tokenizer import Tokenizer
from tandem.model.layers import CrossAttention, SelfAttention
from tandem.model.transformer import DecoderLayer, EncoderLayer, Transformer
from tandem.translation.ctranslate2_weights import forbidden_bias
from tandem.vocabulary import BOS, EOS, PAD, UNK


def write_eole(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """Write weights, vocabulary and settings into an existing folder, in float32."""
    pieces = tokenizer.pieces()
    vocabulary = {
        "src": pieces,
        "tgt": pieces,
        "specials": special_pieces(pieces),
        "decoder_start_token": pieces[BOS],
    }
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_settings(model)), encoding="utf-8")
    weights = {name: values.detach().float().contiguous() for name, values in _weights(model, len(pieces))}
    save_file(weights, folder / "model.00.safetensors")


def eole_sources(lines: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Sentences as eole is given them: their pieces, and that of the end, separated by spaces."""
    pieces = tokenizer.pieces()
    return [" ".join(pieces[number] for number in (*ids, EOS)) for ids in tokenizer.encode(lines)]


def eole_translations(lines: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """The text of what eole has translated, whose lines are pieces separated by spaces."""
    numbers = {piece: number for number, piece in enumerate(tokenizer.pieces())}
    return tokenizer.decode([[numbers[piece] for piece in line.split()] for line in lines])


def special_pieces(pieces: Sequence[str]) -> dict[str, str]:
    """Pieces with a meaning of their own, by eole's names for them."""
    return {"pad_token": pieces[PAD], "unk_token": pieces[UNK], "bos_token": pieces[BOS], "eos_token": pieces[EOS]}


def eole_shape(config: ModelConfig) -> dict[str, object]:
    """The part `model` of eole's settings."""
    return {
        "architecture": "transformer",
        "hidden_size": config.d_model,
        "heads": config.heads,
        "transformer_ff": config.d_ff,
        "mlp_activation_fn": "relu",
        "add_qkvbias": True,
        "add_final_linear_bias": True,
        "add_ffnbias": True,
        "generator_bias": True,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "embeddings": {"word_vec_size": config.d_model, "position_encoding_type": "SinusoidalConcat"},
        "encoder": {"encoder_type": "transformer", "layers": config.encoder_layers},
        "decoder": {"decoder_type": "transformer", "layers": config.decoder_layers},
    }


def _settings(model: Transformer) -> dict[str, object]:
    return {
        "model": {**eole_shape(model.config), "norm_eps": model.decoder_norm.eps},
        "training": {"compute_dtype": "fp32"},
        "share_vocab": True,
        "src_vocab": "vocab.json",
        "data": {},
    }


def _weights(model: Transformer, vocab_size: int) -> Iterator[tuple[str, Tensor]]:
    """eole's names and our tensors."""
    embedding_VD = model.embedding.weight[:vocab_size]
    for owner in ("src_emb.embeddings", "tgt_emb.embeddings", "generator"):
        yield f"{owner}.weight", embedding_VD.clone()
    yield "generator.bias", Tensor(forbidden_bias(vocab_size))
    yield from _named("encoder.layer_norm", model.encoder_norm)
    yield from _named("decoder.layer_norm", model.decoder_norm)
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            place = f"{side}.transformer_layers.{number}"
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            yield from _named(f"{place}.input_layernorm", layer.attention_norm)
            yield from _attention(f"{place}.self_attn", layer.attention)
            yield from _named(f"{place}.post_attention_layernorm", layer.feed_forward_norm)
            yield from _named(f"{place}.mlp.gate_up_proj", layer.feed_forward.inner)
            yield from _named(f"{place}.mlp.down_proj", layer.feed_forward.output)
            if isinstance(layer, DecoderLayer):
                yield from _named(f"{place}.precontext_layernorm", layer.cross_attention_norm)
                yield from _attention(f"{place}.context_attn", layer.cross_attention)


def _attention(place: str, attention: SelfAttention | CrossAttention) -> Iterator[tuple[str, Tensor]]:
    """eole has a map each for queries, keys and values."""
    names = [f"{place}.linear_{part}" for part in ("query", "keys", "values")]
    if isinstance(attention, SelfAttention):
        joint = attention.query_key_value
    else:
        yield from _named(names.pop(0), attention.query)
        joint = attention.key_value
    for kind, values in joint.named_parameters():
        for name, part in zip(names, values.chunk(len(names)), strict=True):
            yield f"{name}.{kind}", part
    yield from _named(f"{place}.final_linear", attention.output)


def _named(place: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for kind, values in module.named_parameters():
        yield f"{place}.{kind}", values
