"""int4: gradients cross between hosts in four bits a value, with error feedback."""

from __future__ import annotations

import torch
from torch import Tensor

from tandem.cluster.exchange.strategy import Strategy
from tandem.cluster.exchange.traffic import VALUES_PER_SCALE
from tandem.cluster.exchange.vector_sum import CompressedSum

# Four bits hold the whole numbers -7 ... 7, written as 1 ... 15.
LARGEST, MIDDLE = 7, 8
# bfloat16 has 8 significant bits: a number this much larger is never rounded below the original.
ROUND_UP = 1 + 2**-8
SCALE_BYTES = 2


class FourBitSum(CompressedSum):
    """Four bits a value and a scale for every stretch, with error feedback.

    The feedback is what makes four bits enough: an error is not lost but comes a step late.
    """

    error_feedback = True

    def encode(self, rows: Tensor) -> Tensor:
        stretches = rows.view(len(rows), -1, VALUES_PER_SCALE)
        # Rounded up to bfloat16, which has float32's range, so that no value is beyond the largest whole number.
        largest = torch.linalg.vector_norm(stretches, torch.inf, dim=-1, keepdim=True)
        scales = (largest * (ROUND_UP / LARGEST)).bfloat16()
        # Where all values are zero any factor will do.
        factors = scales.float().reciprocal_().nan_to_num_(posinf=0.0)
        # Adding the middle and half, then cutting, rounds and makes positive in one go.
        nibbles = (stretches * factors).add_(MIDDLE + 0.5).to(torch.uint8).flatten(1)
        pairs = nibbles.view(torch.int16)
        packed = (pairs >> 4).bitwise_or_(pairs).to(torch.uint8)
        return torch.cat([packed, scales.view(torch.uint8).flatten(1)], 1)

    def decode(self, rows: Tensor) -> Tensor:
        # Each stretch has half as many bytes as values, and those of its scale.
        values = rows.shape[1] // (VALUES_PER_SCALE // 2 + SCALE_BYTES) * (VALUES_PER_SCALE // 2)
        pairs = rows[:, :values].to(torch.int16)
        nibbles = (pairs << 4).bitwise_or_(pairs).bitwise_and_(0x0F0F).view(torch.uint8)
        scales = rows[:, values:].contiguous().view(torch.bfloat16).float()[..., None]
        stretches = nibbles.view(len(rows), -1, VALUES_PER_SCALE).float()
        return torch.addcmul(scales * -MIDDLE, stretches, scales).flatten(1)


class FourBitStrategy(Strategy):
    """Sum between hosts in four bits, with error feedback."""

    auto_order = 2
    # What comes after it for `auto`, local steps, costs quality (docs/slow-networks.md): it may cost more time.
    accepted_slow_down = 1.5
    bytes_per_value = 0.5 + SCALE_BYTES / VALUES_PER_SCALE
    keeps_state = True
    compressor = FourBitSum


STRATEGY = FourBitStrategy()
