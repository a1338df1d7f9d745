"""float16's loss scale, kept on the device so that no step waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# PyTorch's own values (torch.amp.GradScaler): begin high, halve at an overflow, double after so many steps without.
FIRST_SCALE, GROWTH, BACKOFF, GROWTH_INTERVAL = 2.0**16, 2.0, 0.5, 2000


class LossScale:
    """The factor that lifts gradients which float16 would round to zero; halved whenever one overflows."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.full((), FIRST_SCALE, device=device)
        self._steps_without_overflow = torch.zeros((), device=device)

    def update(self, overflowed: Tensor) -> None:
        """Grow or shrink the scale, by whether this step's gradient was finite."""
        steps = self._steps_without_overflow + 1
        grows = steps == GROWTH_INTERVAL
        grown = torch.where(grows, self.value * GROWTH, self.value)
        self.value = torch.where(overflowed, self.value * BACKOFF, grown)
        self._steps_without_overflow = steps.masked_fill_(grows | overflowed, 0)

    def numbers(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"scale": float(self.value), "steps_without_overflow": int(self._steps_without_overflow)}

    def restore(self, numbers: Mapping[str, Any]) -> None:
        """Become the scale that was saved."""
        self.value.fill_(numbers["scale"])
        # Under another name in checkpoints of PyTorch's scaler.
        self._steps_without_overflow.fill_(numbers.get("steps_without_overflow", numbers.get("_growth_tracker", 0)))
