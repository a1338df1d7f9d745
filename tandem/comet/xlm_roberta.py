"""XLM-RoBERTa: text to ids, and ids to the hidden states of all layers, with PyTorch's own layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn

from tandem.comet.comet_folder import EncoderSettings
from tandem.errors import TandemError

# The first ids, which fairseq's dictionary puts before SentencePiece's pieces.
BOS, PAD, EOS, UNKNOWN = 0, 1, 2, 3
# How much higher the ids of all pieces are for that; SentencePiece's own <s>, </s> and <unk> are its first three.
SHIFT = 1
# Positions are counted from there on.
FIRST_POSITION = PAD + 1


class XlmrTokenizer:
    """SentencePiece with XLM-RoBERTa's numbers."""

    def __init__(self, model: Path, settings: EncoderSettings) -> None:
        try:
            self._pieces = SentencePieceProcessor(model_file=str(model))
        except (OSError, RuntimeError) as error:
            raise TandemError(f"{model}: not a SentencePiece model; copy it again") from error
        if self._pieces.get_piece_size() + SHIFT > settings.vocab_size:
            raise TandemError(f"{model}: has more pieces than the encoder; copy the tokenizer of the same one")
        # As COMET cuts sentences; two positions are never used, and two ids are those of the ends.
        self._longest = settings.max_position_embeddings - 2 * FIRST_POSITION - 2

    def encode(self, text: str) -> list[int]:
        """The ids of a sentence with its ends; one that is too long loses its last pieces."""
        ids = [SHIFT + piece if piece else UNKNOWN for piece in self._pieces.encode(text)]
        return [BOS, *ids[: self._longest], EOS]


def padded(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Sentences as the rows of a matrix."""
    rows = [torch.tensor(sentence) for sentence in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class XlmrEncoder(nn.Module):
    """The encoder: embeddings, then layers that normalise after each block."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width = settings.hidden_size
        self.words = nn.Embedding(settings.vocab_size, width)
        self.positions = nn.Embedding(settings.max_position_embeddings, width)
        self.types = nn.Embedding(1, width)
        self.norm = nn.LayerNorm(width, settings.layer_norm_eps)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                settings.num_attention_heads,
                settings.intermediate_size,
                dropout=0.0,
                activation="gelu",
                layer_norm_eps=settings.layer_norm_eps,
                batch_first=True,
            )
            for _ in range(settings.num_hidden_layers)
        )

    def forward(self, ids_BS: Tensor) -> list[Tensor]:
        """Hidden states (B, S, width) of the embeddings and of every layer; of padding they mean nothing."""
        there_BS = ids_BS != PAD
        positions_BS = there_BS.cumsum(1) * there_BS + PAD
        hidden = self.norm(self.words(ids_BS) + self.types.weight[0] + self.positions(positions_BS))
        states = [hidden]
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=~there_BS)
            states.append(hidden)
        return states


# Our name of each tensor of a layer, and HuggingFace's; queries, keys and values lie in one for us.
_LAYER_NAMES = {
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}
_EMBEDDINGS = {
    "words.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "types.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}


def encoder_weights(weights: Mapping[str, Tensor], settings: EncoderSettings) -> dict[str, Tensor]:
    """An encoder's weights under our names, from those under HuggingFace's; a KeyError names one that is missing."""
    ours = {name: weights[f"embeddings.{theirs}"] for name, theirs in _EMBEDDINGS.items()}
    for number in range(settings.num_hidden_layers):
        place, theirs = f"layers.{number}", f"encoder.layer.{number}"
        for kind in ("weight", "bias"):
            for name, their_name in _LAYER_NAMES.items():
                ours[f"{place}.{name}.{kind}"] = weights[f"{theirs}.{their_name}.{kind}"]
            parts = [weights[f"{theirs}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            ours[f"{place}.self_attn.in_proj_{kind}"] = torch.cat(parts)
    return ours
