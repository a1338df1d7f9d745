"""The pre-norm encoder-decoder Transformer with sinusoidal positions and one tied embedding.

Shapes: B batch, S source positions, T target positions, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tandem.config import ModelConfig
from tandem.corpus.tokenizer import PAD
from tandem.model.layers import CrossAttention, FeedForward, KeyValues, SelfAttention, dropout, split_heads
from tandem.model.memory_estimate import VOCABULARY_TILE

# PyTorch's memory-efficient attention copies a mask unless all its strides but the last are multiples of 16
# (aten/src/ATen/native/transformers/attention.cpp, preprocess_mask and aligned_tensor).
MASK_ALIGNMENT = 16


@dataclass
class Memory:
    """An encoded source: for each decoder layer its keys and values, and the mask of padding."""

    keys_values: list[tuple[Tensor, Tensor]]
    mask: Tensor | None

    def select(self, rows: Tensor) -> Memory:
        """Keep these sentences of the batch."""
        return Memory(
            [(k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.keys_values],
            None if self.mask is None else self.mask.index_select(0, rows),
        )


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.rate = config.dropout
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = SelfAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)

    def forward(self, x_BSD: Tensor, mask: Tensor | None) -> Tensor:
        x_BSD = x_BSD + dropout(self.attention(self.attention_norm(x_BSD), mask=mask), self.rate, self.training)
        return x_BSD + dropout(self.feed_forward(self.feed_forward_norm(x_BSD)), self.rate, self.training)


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
        x_BTD: Tensor,
        keys_values: tuple[Tensor, Tensor],
        source_mask: Tensor | None,
    ) -> Tensor:
        x_BTD = x_BTD + self.drop(self.attention(self.attention_norm(x_BTD), causal=True))
        x_BTD = x_BTD + self.drop(self.cross_attention(self.cross_attention_norm(x_BTD), keys_values, source_mask))
        return x_BTD + self.drop(self.feed_forward(self.feed_forward_norm(x_BTD)))

    def step(
        self, x_BRD: Tensor, past: KeyValues, keys_values: tuple[Tensor, Tensor], source_mask: Tensor | None
    ) -> Tensor:
        """Decode one position of R hypotheses a sentence.

        To the cross attention the R hypotheses look like R positions, so the source's keys and values are
        shared between them instead of being copied R times.
        """
        batch, hypotheses, width = x_BRD.shape
        rows = self.attention_norm(x_BRD).view(batch * hypotheses, 1, width)
        x_BRD = x_BRD + self.attention(rows, past=past).view(batch, hypotheses, width)
        x_BRD = x_BRD + self.cross_attention(self.cross_attention_norm(x_BRD), keys_values, source_mask)
        x_BRD = x_BRD + self.feed_forward(self.feed_forward_norm(x_BRD))
        return x_BRD

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)


def sinusoids(positions: int, width: int) -> Tensor:
    """The fixed position signal: sines in the first half of the width, cosines in the second."""
    frequencies = torch.exp(torch.arange(width // 2) * (-math.log(10_000.0) / max(width // 2 - 1, 1)))
    angles = torch.arange(positions).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Transformer(nn.Module):
    """Maps source ids and the target so far to a hidden state for every target position."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        rows = math.ceil(vocab_size / VOCABULARY_TILE) * VOCABULARY_TILE
        self.vocab_size = vocab_size
        # Source, target and output share this one matrix. It comes first, so that in one flat vector of all weights
        # the gradient that backward finishes last has one end to itself.
        self.embedding = nn.Embedding(rows, config.d_model, padding_idx=PAD)
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
        """Hidden states (B, T, D) for teacher-forced target ids."""
        memory = self.encode(source_BS, padded=source_padded)
        x_BTD = self.embed(target_BT)
        for layer, keys_values in zip(self.decoder, memory.keys_values, strict=True):
            x_BTD = layer(x_BTD, keys_values, memory.mask)
        hidden: Tensor = self.decoder_norm(x_BTD)
        return hidden

    def encode(self, source_BS: Tensor, *, padded: bool = True) -> Memory:
        """Encode the source, down to the keys and values that each decoder layer will look at.

        A batch of equal lengths, which is common, needs no mask; only without one can a GPU choose Flash attention.
        """
        x_BSD = self.embed(source_BS)
        mask = self.padding_mask(source_BS) if padded else None
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask)
        x_BSD = self.encoder_norm(x_BSD)
        return Memory(self.source_keys_values(x_BSD), mask)

    def source_keys_values(self, x_BSD: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each decoder layer the encoded source's keys and values."""
        if self.joint_key_value is None:
            return [layer.cross_attention.keys_values(x_BSD) for layer in self.decoder]  # type: ignore[union-attr, operator]
        parts = self.joint_key_value(x_BSD).chunk(2 * len(self.decoder), dim=-1)
        heads = [split_heads(part, self.config.heads) for part in parts]
        return list(zip(heads[::2], heads[1::2], strict=True))

    def step(self, tokens_BR: Tensor, position: int, pasts: list[KeyValues], memory: Memory) -> Tensor:
        """Hidden states (B, R, D) after one more token of each of R hypotheses a sentence."""
        x_BRD = self.placed_embedding(tokens_BR, self.positions[position])
        for layer, past, keys_values in zip(self.decoder, pasts, memory.keys_values, strict=True):
            x_BRD = layer.step(x_BRD, past, keys_values, memory.mask)  # type: ignore[operator]
        hidden: Tensor = self.decoder_norm(x_BRD)
        return hidden

    def output_weight(self) -> Tensor:
        """The output projection (V, D), with the rows that only pad the vocabulary: their logits are no words."""
        return self.embedding.weight

    def output_projection(self) -> Tensor:
        """The same in the number format of the activations."""
        return self.embedding.weight.to(self.dtype) if self.cast_projection is None else self.cast_projection

    def embed(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.placed_embedding(ids_BT, self.positions[: ids_BT.shape[1]])
        return dropout(x_BTD, self.config.dropout, self.training)

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
