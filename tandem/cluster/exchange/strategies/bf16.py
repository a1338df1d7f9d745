"""bf16: gradients cross between hosts as bfloat16, half the bytes of float32."""

from __future__ import annotations

import torch
from torch import Tensor

from tandem.cluster.exchange.strategy import Strategy
from tandem.cluster.exchange.vector_sum import CompressedSum


class BFloat16Sum(CompressedSum):
    """Half the bytes of float32; added up in float32, so that only what travels is rounded."""

    def encode(self, rows: Tensor) -> Tensor:
        return rows.bfloat16().view(torch.uint8)

    def decode(self, rows: Tensor) -> Tensor:
        return rows.view(torch.bfloat16).float()


class BFloat16Strategy(Strategy):
    """Sum between hosts in bfloat16."""

    auto_order = 1
    bytes_per_value = 2.0
    compressor = BFloat16Sum


STRATEGY = BFloat16Strategy()
