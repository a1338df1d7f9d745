"""Counters of what a program made the rehearsal device do: launches, synchronisations, copies, messages."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

ELSEWHERE = "elsewhere"
"""The place of what no line of the package caused, such as a backward pass on autograd's own thread."""


@dataclass
class Counts:
    """Counters of one rehearsal.

    A launch is one operator of PyTorch's aten library that computes; views and allocations launch nothing. What real
    CUDA does with two kernels (layer norm's backward, a reduction in two passes) counts as one, and so does a fused
    optimizer step or a `torch.cat` whatever the number of its tensors.
    """

    package: Path
    """Directory of the package whose lines are named."""
    launches: Counter[str] = field(default_factory=Counter)
    """Kernel launches, by operator."""
    synchronisations: Counter[str] = field(default_factory=Counter)
    """Times the host waited for the device, by "kind file:line"."""
    copies: Counter[str] = field(default_factory=Counter)
    """Copies between host and device or two devices, by "kind file:line"; those that wait synchronise, too."""
    slow: Counter[str] = field(default_factory=Counter)
    """Launches that compute in float64, by "operator file:line"; most cards do that at 1/32 of their float32 rate."""
    attention: Counter[str] = field(default_factory=Counter)
    """Calls of scaled dot product attention, by the fastest backend that takes them: flash, efficient or math."""
    messages: Counter[str] = field(default_factory=Counter)
    """Collectives of CPU tensors (control messages), by "collective file:line"."""

    def clear(self) -> None:
        """Start again from zero."""
        for counter in self._counters().values():
            counter.clear()

    def totals(self) -> dict[str, int]:
        """The sum of each counter."""
        return {name: counter.total() for name, counter in self._counters().items()}

    def to_json(self) -> str:
        """The totals and every counter, largest first."""
        content = {name: dict(counter.most_common()) for name, counter in self._counters().items()}
        return json.dumps({"totals": self.totals(), **content}, indent=2)

    def place(self) -> str:
        """The innermost line of the package on this thread's stack, as "file:line" relative to the package."""
        frame, prefix = sys._getframe(1), f"{self.package}/"
        while frame is not None:
            if frame.f_code.co_filename.startswith(prefix):
                return f"{frame.f_code.co_filename.removeprefix(prefix)}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return ELSEWHERE

    def _counters(self) -> dict[str, Counter[Any]]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Counter)}
