"""Tiny Transformers for the tests of the model room."""

from __future__ import annotations

import torch
from torch import Tensor

from tandem.config import ModelConfig
from tandem.model.transformer import Transformer


def random_model(vocab_size: int = 21, *, seed: int = 0, spread: float = 0.3, **settings: float) -> Transformer:
    """An untrained model in evaluation mode, in float64, so that only real differences show.

    Every parameter is moved away from its first value: biases of zero and gains of one would hide mix-ups.
    """
    shape = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "heads": 4, "d_ff": 24, "max_length": 40}
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{**shape, **settings}), vocab_size).double().eval()  # type: ignore[arg-type]
    model.compute_dtype = torch.float64
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += spread * torch.randn_like(parameter)
    return model


def random_ids(*shape: int, vocab_size: int = 21, seed: int = 0) -> Tensor:
    """Ids of ordinary pieces."""
    return torch.randint(4, vocab_size, shape, generator=torch.Generator().manual_seed(seed))
