"""The pre-norm encoder-decoder Transformer with sinusoidal positions and one tied embedding.

Shapes: B batch, S source positions, T target positions, D model width, V vocabulary, N rows (see `flatten_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tandem.config import ModelConfig
from tandem.model.layers import (
    CrossAttention,
    FeedForward,
    KeyValues,
    SelfAttention,
    add_dropout,
    add_missing_rows,
    dropout,
    flatten_rows,
    split_heads,
    unflatten_rows,
)
from tandem.model.memory_estimate import largest_search_batch, padded_vocabulary
from tandem.model.translation_model import DecoderState, TranslationModel
from tandem.vocabulary import PAD

# PyTorch's memory-efficient attention copies a mask unless all its strides but the last are multiples of 16
# (aten/src/ATen/native/transformers/attention.cpp, preprocess_mask and aligned_tensor).
MASK_ALIGNMENT = 16
# Ends of the names of the maps from the encoded source to each decoder layer's keys and values.
SOURCE_WEIGHTS, SOURCE_BIASES = "cross_attention.key_value.weight", "cross_attention.key_value.bias"


@dataclass
class TransformerState:
    """For each decoder layer the keys and values of the source and of what was decoded, and the mask of padding."""

    source: list[tuple[Tensor, Tensor]]
    mask: Tensor | None
    decoded: list[KeyValues]

    def select_sentences(self, rows_B: Tensor) -> None:
        self.source = [(k.index_select(0, rows_B), v.index_select(0, rows_B)) for k, v in self.source]
        self.mask = None if self.mask is None else self.mask.index_select(0, rows_B)

    def select_hypotheses(self, rows: Tensor) -> None:
        for past in self.decoded:
            past.select(rows)


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.rate = config.dropout
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = SelfAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)

    def forward(self, x_ND: Tensor, shape: tuple[int, int], mask: Tensor | None) -> Tensor:
        x_ND = self.add(x_ND, self.attention(self.attention_norm(x_ND), shape, mask=mask))
        return self.add(x_ND, self.feed_forward(self.feed_forward_norm(x_ND)))

    def add(self, x_ND: Tensor, change_ND: Tensor) -> Tensor:
        return add_dropout(x_ND, change_ND, self.rate, self.training)


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.rate = config.dropout
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = SelfAttention(config.d_model, config.heads, config.attention_dropout)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)
        self.cross_attention = CrossAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)

    def forward(
        self,
        x_ND: Tensor,
        shape: tuple[int, int],
        keys_values: tuple[Tensor, Tensor],
        source_mask: Tensor | None,
    ) -> Tensor:
        x_ND = self.add(x_ND, self.attention(self.attention_norm(x_ND), shape, causal=True))
        x_ND = self.add(x_ND, self.cross_attention(self.cross_attention_norm(x_ND), shape, keys_values, source_mask))
        return self.add(x_ND, self.feed_forward(self.feed_forward_norm(x_ND)))

    def step(
        self,
        x_ND: Tensor,
        shape: tuple[int, int],
        past: KeyValues,
        keys_values: tuple[Tensor, Tensor],
        source_mask: Tensor | None,
    ) -> Tensor:
        """Decode one position of R hypotheses of B sentences; the shape is (B, R).

        To the cross attention the R hypotheses look like R positions, so the source's keys and values are
        shared between them instead of being copied R times.
        """
        x_ND = x_ND + self.attention(self.attention_norm(x_ND), (math.prod(shape), 1), past=past)
        x_ND = x_ND + self.cross_attention(self.cross_attention_norm(x_ND), shape, keys_values, source_mask)
        x_ND = x_ND + self.feed_forward(self.feed_forward_norm(x_ND))
        return x_ND

    def add(self, x_ND: Tensor, change_ND: Tensor) -> Tensor:
        return add_dropout(x_ND, change_ND, self.rate, self.training)


def sinusoids(positions: int, width: int) -> Tensor:
    """The fixed position signal: sines in the first half of the width, cosines in the second."""
    frequencies = torch.exp(torch.arange(width // 2) * (-math.log(10_000.0) / max(width // 2 - 1, 1)))
    angles = torch.arange(positions).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Transformer(TranslationModel):
    """The encoder-decoder Transformer with pre-norm layers and sinusoidal positions."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        # Source, target and output share this one matrix. It comes first, so that in one flat vector of all weights
        # the gradient that backward finishes last has one end to itself.
        self.embedding = nn.Embedding(padded_vocabulary(vocab_size), config.d_model, padding_idx=PAD)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(config.d_model)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.decoder_norm = nn.LayerNorm(config.d_model)
        self.joint_key_value: nn.Linear | None = None
        """The maps to all decoder layers' keys and values as one product, in a copy for training."""
        self.cast_projection: Tensor | None = None
        """The output projection, already in the number format of the activations; without it, every use casts."""
        self.positions: Tensor
        # Recomputed, not trained, so it has no place in a checkpoint.
        self.register_buffer("positions", sinusoids(config.max_length + 1, config.d_model), persistent=False)
        self.initialise()

    def initialise(self) -> None:
        """Xavier for the linear maps; embeddings of variance 1/D, so that scaled up they have variance 1."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5)
        with torch.no_grad():
            self.embedding.weight[PAD].zero_()

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the activations, and with them of every product."""
        return self.decoder_norm.weight.dtype

    def forward(self, source_BS: Tensor, target_BT: Tensor, *, source_padded: bool = True) -> Tensor:
        encoded = self.encode(source_BS, padded=source_padded)
        shape = (target_BT.shape[0], target_BT.shape[1])
        x_ND = self.embed(target_BT)
        for layer, keys_values in zip(self.decoder, encoded.source, strict=True):
            x_ND = layer(x_ND, shape, keys_values, encoded.mask)
        return unflatten_rows(self.decoder_norm(x_ND), shape)

    def encode(self, source_BS: Tensor, *, padded: bool = True) -> TransformerState:
        """Encode the source, down to the keys and values that each decoder layer will look at.

        A batch of equal lengths, which is common, needs no mask; only without one can a GPU choose Flash attention.
        """
        shape = (source_BS.shape[0], source_BS.shape[1])
        x_ND = self.embed(source_BS)
        mask = self.padding_mask(source_BS) if padded else None
        for layer in self.encoder:
            x_ND = layer(x_ND, shape, mask)
        keys_values = self.source_keys_values(self.encoder_norm(x_ND), shape)
        return TransformerState(keys_values, mask, [KeyValues() for _ in self.decoder])

    def source_keys_values(self, x_ND: Tensor, shape: tuple[int, int]) -> list[tuple[Tensor, Tensor]]:
        """For each decoder layer the encoded source's keys and values."""
        if self.joint_key_value is None:
            return [layer.cross_attention.keys_values(x_ND, shape) for layer in self.decoder]  # type: ignore[union-attr, operator]
        parts = unflatten_rows(self.joint_key_value(x_ND), shape).chunk(2 * len(self.decoder), dim=-1)
        heads = [split_heads(part, self.config.heads) for part in parts]
        return list(zip(heads[::2], heads[1::2], strict=True))

    def step(self, tokens_BR: Tensor, position: int, state: DecoderState) -> Tensor:
        assert isinstance(state, TransformerState)
        shape = (tokens_BR.shape[0], tokens_BR.shape[1])
        x_ND = flatten_rows(self.placed_embedding(tokens_BR, self.positions[position]))
        for layer, past, keys_values in zip(self.decoder, state.decoded, state.source, strict=True):
            x_ND = layer.step(x_ND, shape, past, keys_values, state.mask)  # type: ignore[operator]
        return unflatten_rows(self.decoder_norm(x_ND), shape)

    def output_weight(self) -> Tensor:
        return self.embedding.weight

    def output_projection(self) -> Tensor:
        return self.embedding.weight.to(self.dtype) if self.cast_projection is None else self.cast_projection

    def parameter_order(self) -> list[str]:
        """Maps to the source's keys and values come before the decoder, which needs them all when it begins.

        Their weights lie side by side, and so do their biases, so that one product can make them all.
        """
        names = super().parameter_order()
        source = [name for kind in (SOURCE_WEIGHTS, SOURCE_BIASES) for name in names if name.endswith(kind)]
        decoder = [name for name in names if name.startswith("decoder") and name not in source]
        return [name for name in names if name not in source and name not in decoder] + source + decoder

    def parts(self) -> dict[str, list[str]]:
        """Each stack with the norm at its end."""
        parts = super().parts()
        for stack in ("encoder", "decoder"):
            parts[stack] += parts.pop(f"{stack}_norm")
        return parts

    def working_copy(self, weights: Mapping[str, Tensor]) -> Transformer:
        """One product makes the source's keys and values for all decoder layers.

        The embedding is looked up in float32, because a frequent word's gradient is a sum of thousands, which half
        precision would cut short; the output projection, the same matrix, takes part in products and is cast.
        """
        with torch.device("meta"):
            working = Transformer(self.config, self.vocab_size)
            joint = nn.Linear(self.config.d_model, 2 * self.config.d_model * self.config.decoder_layers)
        for layer in working.decoder:
            del layer.cross_attention.key_value  # type: ignore[union-attr]
        for name, _ in list(working.named_parameters()):
            owner, _, leaf = name.rpartition(".")
            setattr(working.get_submodule(owner), leaf, nn.Parameter(weights[name]))
        joint.weight = nn.Parameter(_side_by_side(weights, SOURCE_WEIGHTS).view(joint.weight.shape))
        joint.bias = nn.Parameter(_side_by_side(weights, SOURCE_BIASES))
        working.joint_key_value = joint
        working.embedding.weight = nn.Parameter(self.embedding.weight.detach())
        working.positions = self.positions
        working.cast_projection = weights["embedding.weight"]
        return working

    def compile_layers(self) -> None:
        for layer in (*self.encoder, *self.decoder):
            layer.compile(dynamic=True)

    def largest_search_batch(self, beam: int, memory_bytes: int) -> int:
        return largest_search_batch(self.config, self.vocab_size, beam, memory_bytes)

    def embed(self, ids_BT: Tensor) -> Tensor:
        """What the first layer is given: rows of placed embeddings, which are dropped out while training."""
        x_BTD = self.placed_embedding(ids_BT, self.positions[: ids_BT.shape[1]])
        # In this order dropout leaves a tensor of its own. A view would have that layer compiled once more by itself.
        return add_missing_rows(dropout(x_BTD.flatten(0, 1), self.config.dropout, self.training))

    def placed_embedding(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embeddings with the position signal added, in the number format of the activations."""
        # Without the scale the position signal, of size one, would drown the word.
        return torch.add(positions, self.embedding(ids), alpha=math.sqrt(self.config.d_model)).to(self.dtype)

    def padding_mask(self, ids_BS: Tensor) -> Tensor:
        """What is added to attention scores: minus infinity where a key is padding."""
        batch, length = ids_BS.shape
        # Strides that are all multiples of MASK_ALIGNMENT spare CUDA's kernels a copy of the mask in every layer.
        width = math.ceil(length / MASK_ALIGNMENT) * MASK_ALIGNMENT
        mask_B11S = torch.zeros(batch, 1, 1, width, dtype=self.dtype, device=ids_BS.device)[..., :length]
        return mask_B11S.masked_fill_((ids_BS == PAD)[:, None, None], float("-inf"))


def _side_by_side(weights: Mapping[str, Tensor], kind: str) -> Tensor:
    """One view of all weights of a kind, which are neighbours in one vector."""
    found = [values for name, values in weights.items() if name.endswith(kind)]
    return found[0].as_strided((sum(values.numel() for values in found),), (1,), found[0].storage_offset())
