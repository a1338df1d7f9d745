"""Models and formats that no export should leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tandem.exporting.argos_package import ArgosPackage
from tandem.exporting.ctranslate2_folder import CTranslate2Folder
from tandem.exporting.export_format import Quantization, TrainedModel
from tandem.model.transformer import Transformer, TransformerState
from tandem.model.translation_model import DecoderState, TranslationModel


class Shapeless(TranslationModel):
    """A model of a user's own, which has nothing of a Transformer."""

    def encode(self, source_BS: Tensor, *, padded: bool = True) -> DecoderState:
        return TransformerState([], None, [])

    def forward(self, source_BS: Tensor, target_BT: Tensor, *, source_padded: bool = True) -> Tensor:
        return target_BT

    def step(self, tokens_BR: Tensor, position: int, state: DecoderState) -> Tensor:
        return tokens_BR

    def output_weight(self) -> Tensor:
        return torch.zeros(1)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        pass


class Noisy(CTranslate2Folder):
    """CTranslate2's files with some noise in a weight."""

    def write(self, trained: TrainedModel, quantization: Quantization, folder: Path) -> None:
        model = Transformer(trained.config.model, trained.tokenizer.vocab_size)
        model.load_state_dict(trained.model.state_dict())
        with torch.no_grad():
            noise = torch.randn(model.decoder_norm.weight.shape, generator=torch.Generator().manual_seed(1))
            model.decoder_norm.weight.add_(noise, alpha=0.05)
        super().write(replace(trained, model=model.eval()), quantization, folder)


class Careless(ArgosPackage):
    """A package whose search is not the run's: it stops at once."""

    def load(self, trained: TrainedModel, folder: Path):  # type: ignore[no-untyped-def]
        loaded = super().load(trained, folder)
        loaded.translate = lambda lines: [line.split()[0] for line in lines]  # type: ignore[method-assign]
        return loaded


NOISY, CARELESS = Noisy(), Careless()
