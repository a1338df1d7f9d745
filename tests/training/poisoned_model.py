"""A model plug-in with a planted fault: training blows up on one batch of the corpus, and on no other.

The batch is known by the ids of its targets, in the file that POISON names; FAULT says how it blows up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tandem.model.transformer import Transformer

# So large that Adam's mean square of the gradients forgets nothing else for thousands of steps.
SPIKE = -1e8


class _Spike(torch.autograd.Function):
    """The identity, whose gradient is far too large and points uphill."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return SPIKE * gradients[0]


class Poisoned(Transformer):
    """A Transformer that is like any other, but for one batch."""

    def working_copy(self, weights: Mapping[str, Tensor]) -> Transformer:
        working = super().working_copy(weights)
        working.__class__ = Poisoned
        return working

    def forward(self, source_BS: Tensor, target_BT: Tensor, *, source_padded: bool = True) -> Tensor:
        hidden_BTD = super().forward(source_BS, target_BT, source_padded=source_padded)
        if target_BT.tolist() not in json.loads(Path(os.environ["POISON"]).read_text()):
            return hidden_BTD
        if os.environ["FAULT"] == "nan":
            return hidden_BTD * torch.nan
        spiked: Tensor = _Spike.apply(hidden_BTD)
        return spiked
