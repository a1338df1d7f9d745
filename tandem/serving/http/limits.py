"""How many requests a client may make."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

# Clients remembered; of more, those that have been silent longest are forgotten, which lets them begin anew.
MOST_CLIENTS = 10_000


class RateLimit:
    """A bucket of tokens for each client: a minute's requests at once, and then as many as flow in again."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request; seconds to wait if it is one too many, otherwise 0."""
        return self._refill(client, 1.0)

    def look(self, client: str) -> float:
        """Seconds to wait before a request would not be one too many; none is counted."""
        return self._refill(client, 0.0)

    def _refill(self, client: str, cost: float) -> float:
        if self._per_minute is None:
            return 0.0
        now, rate = self._clock(), self._per_minute / 60
        tokens, last = self._buckets.pop(client, (float(self._per_minute), now))
        tokens = min(float(self._per_minute), tokens + (now - last) * rate)
        waiting = 0.0 if tokens >= 1 else (1 - tokens) / rate
        self._buckets[client] = (tokens - cost if tokens >= 1 else tokens, now)
        while len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return waiting
