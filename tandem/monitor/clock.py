"""Where the time goes: every second of a run belongs to one part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Part = Literal["data", "compute", "communication", "optimizer", "evaluation", "checkpoint"]
PARTS: tuple[Part, ...] = get_args(Part)


class Clock:
    """Adds up wall-clock seconds by part; what no part claims is `other`, so the parts always make the whole.

    Times are the host's. On a GPU, kernels run behind the host's back: each step ends by reading the gradient
    norm, so whole steps are right there, but compute and optimizer are not yet told apart.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._lap_start = time.perf_counter()

    @contextmanager
    def measure(self, part: Part) -> Iterator[None]:
        """Charge the time of a block to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - start

    def move(self, seconds: float, source: Part, target: Part) -> None:
        """Charge to `target` what was measured inside a block of `source`."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def lap(self) -> dict[str, float]:
        """Seconds by part since the last lap; their sum is the wall-clock time since then."""
        now = time.perf_counter()
        parts = dict(self._seconds)
        parts["other"] = now - self._lap_start - sum(parts.values())
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._lap_start = now
        return parts
