"""What training, evaluation and search ask of a model, whatever its shape.

A new shape is a class with the four abstract methods below and one line in `tandem.registry.MODELS`; `model.kind`
names it. The rest has defaults that a model may better.

Shapes: B sentences, S source positions, T target positions, R hypotheses a sentence, D model width, V vocabulary.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from tandem.config import ModelConfig
from tandem.errors import TandemError
from tandem.registry import MODELS

# Sentences that a search takes together: more gain a processor nothing.
SEARCH_SENTENCES = 64


class DecoderState(Protocol):
    """What a search carries from position to position: encoded sources, and what the hypotheses have decoded so far."""

    def select_sentences(self, rows_B: Tensor) -> None:
        """Keep the encoded sources of these sentences; `select_hypotheses` follows."""

    def select_hypotheses(self, rows: Tensor) -> None:
        """Continue these of the B x R hypotheses, in this order; one may be continued several times."""


class TranslationModel(nn.Module, ABC):
    """A model from source ids and the target so far to a hidden state for every target position."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size

    @abstractmethod
    def forward(self, source_BS: Tensor, target_BT: Tensor, *, source_padded: bool = True) -> Tensor:
        """Hidden states (B, T, D) for teacher-forced target ids."""

    @abstractmethod
    def encode(self, source_BS: Tensor, *, padded: bool = True) -> DecoderState:
        """Encode sources for a search."""

    @abstractmethod
    def step(self, tokens_BR: Tensor, position: int, state: DecoderState) -> Tensor:
        """Hidden states (B, R, D) after one more token of each hypothesis; the state takes the token in."""

    @abstractmethod
    def output_weight(self) -> Tensor:
        """The map (V, D) from hidden states to logits; rows beyond the vocabulary are ignored."""

    def output_projection(self) -> Tensor:
        """The same in the number format of the hidden states."""
        return self.output_weight()

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def parameter_order(self) -> list[str]:
        """Names of the parameters as forward first needs them: backward is done with the last ones first."""
        return [name for name, _ in self.named_parameters()]

    def parts(self) -> dict[str, list[str]]:
        """Names of the parameters by the part of the model that they belong to, which can be frozen by its name."""
        parts: dict[str, list[str]] = {}
        for name in self.parameter_order():
            parts.setdefault(name.partition(".")[0], []).append(name)
        return parts

    def piece_rows(self) -> set[str]:
        """Names of the saved tensors that have a row for each piece of the vocabulary: embeddings and output map."""
        tables = {id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)}
        tables.add(id(self.output_weight()))
        weights = self.state_dict(keep_vars=True)
        return {name for name in self.named_weights() if id(weights[name]) in tables}

    def working_copy(self, weights: Mapping[str, Tensor]) -> TranslationModel:
        """A copy to train with, whose parameters are these tensors, in the precision of the training."""
        working = copy.deepcopy(self)
        for name, parameter in working.named_parameters():
            parameter.data = weights[name]
        return working

    def compile_layers(self) -> None:
        """Fuse kernels from their first use on; one set of kernels serves batches of all shapes."""
        self.compile(dynamic=True)

    def largest_search_batch(self, beam: int, memory_bytes: int) -> int:
        """Sentences that a search may take together on a GPU with so much free memory."""
        return SEARCH_SENTENCES

    def named_weights(self) -> dict[str, Tensor]:
        """What is saved: every tensor of the model under its first name, also if layers share it."""
        tensors = self.state_dict()
        return {name: tensors[name] for name in self._first_names().values()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take over what `named_weights` gave; a RuntimeError if it was another model's."""
        shared = {name: weights[first] for name, first in self._first_names().items() if first in weights}
        self.load_state_dict({**weights, **shared})

    def _first_names(self) -> dict[str, str]:
        """Every name in the model's state with the first name of the same tensor."""
        first: dict[int, str] = {}
        return {name: first.setdefault(id(tensor), name) for name, tensor in self.state_dict(keep_vars=True).items()}


def frozen_names(model: TranslationModel, freeze: Collection[str]) -> set[str]:
    """Names of the parameters of the parts that `optimizer.freeze` names; all that are not there are told at once."""
    parts = model.parts()
    unknown = [part for part in freeze if part not in parts]
    if unknown:
        raise TandemError(
            f"optimizer.freeze: the model has no part {', '.join(unknown)}; its parts are {', '.join(parts)}"
        )
    frozen = {name for part in freeze for name in parts[part]}
    if len(frozen) == len(model.parameter_order()):
        raise TandemError("optimizer.freeze: nothing is left to train; leave out one part at least")
    return frozen


def build_model(config: ModelConfig, vocab_size: int) -> TranslationModel:
    """The model that the settings name, with weights drawn from PyTorch's generator."""
    model = MODELS.get(config.kind)(config, vocab_size)
    if not isinstance(model, TranslationModel):
        raise TandemError(f"model.kind: {config.kind} makes a {type(model).__name__}, not a TranslationModel")
    return model
