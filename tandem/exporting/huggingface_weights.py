"""A trained Transformer as PegasusForConditionalGeneration, the architecture of transformers that computes the same.

Pegasus has what we have: norms before the blocks and at the end, embeddings scaled by the root of the width, one tied
matrix, and positions from 0 as an ordinary weight, so that our own signal can be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tandem.config import ModelConfig
from tandem.exporting.export_format import TrainedModel
from tandem.model.transformer import sinusoids
from tandem.translation.ctranslate2_weights import POSITIONS, forbidden_bias
from tandem.vocabulary import BOS, EOS, PAD

ARCHITECTURE = "PegasusForConditionalGeneration"
EMBEDDING, BIAS, STACKS = "model.shared.weight", "final_logits_bias", ("encoder", "decoder")

# The parts of a layer: our name, and theirs, one for each part of a matrix that we keep in one piece.
_LAYER = {
    "attention_norm": ("self_attn_layer_norm",),
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.output": ("self_attn.out_proj",),
    "cross_attention_norm": ("encoder_attn_layer_norm",),
    "cross_attention.query": ("encoder_attn.q_proj",),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "feed_forward_norm": ("final_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.output": ("fc2",),
}


def pegasus_weights(trained: TrainedModel, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights by the names that transformers gives them."""
    ours = {name: tensor.detach().cpu() for name, tensor in trained.model.state_dict().items()}
    vocab_size = trained.tokenizer.vocab_size
    # Rows that only pad the matrix for speed are no pieces.
    embedding = ours.pop("embedding.weight")[:vocab_size].clone()
    # Decoding starts with padding there. The stock converter to CTranslate2 insists on that, so that padding has to
    # look like the beginning of a sentence; attention never looks at it anywhere else.
    embedding[PAD] = embedding[BOS]
    theirs = {EMBEDDING: embedding, BIAS: torch.from_numpy(forbidden_bias(vocab_size)).unsqueeze(0)}
    positions = sinusoids(max(POSITIONS, trained.max_length + 1), trained.config.model.d_model)
    for stack in STACKS:
        theirs[f"model.{stack}.embed_positions.weight"] = positions.clone()
    for name, tensor in ours.items():
        names = _their_names(name)
        theirs.update(zip(names, tensor.chunk(len(names)), strict=True))
    return {name: tensor.to(dtype).contiguous() for name, tensor in theirs.items()}


def read_back(weights: Mapping[str, Tensor], trained: TrainedModel) -> dict[str, Tensor]:
    """Our weights again, from those of a file; our rows that only pad the matrix are kept."""
    ours = {}
    for name, tensor in trained.model.state_dict().items():
        if name == "embedding.weight":
            found = tensor.detach().cpu().clone()
            found[: trained.tokenizer.vocab_size] = weights[EMBEDDING].float()
            found[PAD] = 0
        else:
            found = torch.cat([weights[theirs].float() for theirs in _their_names(name)])
        ours[name] = found
    return ours


def pegasus_config(shape: ModelConfig, vocab_size: int, dtype: str) -> dict[str, Any]:
    """The settings that transformers builds the model by."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "pegasus",
        "vocab_size": vocab_size,
        "d_model": shape.d_model,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "num_hidden_layers": shape.encoder_layers,
        "encoder_attention_heads": shape.heads,
        "decoder_attention_heads": shape.heads,
        "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": max(POSITIONS, shape.max_length + 1),
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        # The converter to CTranslate2 asks for these two.
        "normalize_before": True,
        "normalize_embedding": False,
        "dropout": shape.dropout,
        "attention_dropout": shape.attention_dropout,
        "activation_dropout": shape.activation_dropout,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
        "torch_dtype": dtype,
    }


def _their_names(name: str) -> list[str]:
    """Theirs for one of our weights, such as decoder.2.cross_attention.key_value.bias."""
    if name.split("_norm.")[0] in STACKS:  # encoder_norm.weight
        stack, _, kind = name.partition("_norm.")
        return [f"model.{stack}.layer_norm.{kind}"]
    stack, layer, rest = name.split(".", 2)
    part, _, kind = rest.rpartition(".")
    return [f"model.{stack}.layers.{layer}.{their_part}.{kind}" for their_part in _LAYER[part]]
