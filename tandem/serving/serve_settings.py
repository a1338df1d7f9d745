"""The settings of the server."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tandem.config import Section

# Bytes of a character at most, in JSON (\ud83d\ude00) and in a form (%F0%9F%98%80) alike.
_CHARACTER_BYTES = 12
# Bytes for everything in a request that is no text: field names, language codes, keys, the frame of a multipart body.
_FRAME_BYTES = 65_536


class ServeSettings(Section):
    """How the server listens, and what it refuses."""

    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 lets other machines in."""
    port: int = Field(default=5000, ge=0, le=65535)
    """Port to listen at; 0 takes a free one, which is printed."""
    keys: Path | None = None
    """File with the API keys that are let in, one a line; the variable TANDEM_API_KEYS may hold some, too."""
    threads: int | None = Field(default=None, ge=1)
    """Batches translated at the same time, each on one core; by default one for every core."""
    char_limit: int = Field(default=100_000, ge=1)
    """Characters that a request may have, all of its texts together."""
    batch_limit: int = Field(default=256, ge=1)
    """Texts that a request may have."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Requests that a client (a key, or else an address) may make in a minute; by default any number."""
    concurrent_requests: int = Field(default=256, ge=1)
    """Requests worked on at the same time, those not counted that are still being sent; more are told to come back."""
    connections: int = Field(default=4096, ge=2)
    """Open connections; beyond that the one that has waited longest for its client is closed."""
    time_out: float = Field(default=60.0, gt=0)
    """Seconds after which a request is given up."""
    read_time_out: float = Field(default=10.0, gt=0)
    """Seconds in which the head of a request must have come, and again its body."""
    stop_seconds: float = Field(default=30.0, gt=0)
    """Seconds that a stop waits for requests that have begun."""
    watch_seconds: float = Field(default=2.0, gt=0)
    """Seconds between two looks for a newer checkpoint or export."""

    open_browser: bool = False
    """Open the page in a browser once the server listens."""

    @property
    def body_limit(self) -> int:
        """Bytes that the body of a request may have, whatever its form."""
        return _FRAME_BYTES + _CHARACTER_BYTES * self.char_limit
