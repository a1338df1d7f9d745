"""API keys, from a file or the environment: never on the command line, never in a log."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from tandem.errors import TandemError

KEYS_VARIABLE = "TANDEM_API_KEYS"
SHORTEST_KEY = 8


class ApiKeys:
    """The keys that are let in; without any, everybody is."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._digests: list[bytes] = []
        self.reload()

    def reload(self) -> None:
        """Read the keys anew; a fault leaves those there were."""
        keys = os.environ.get(KEYS_VARIABLE, "").split()
        if self._file is not None:
            keys += _read(self._file)
        for key in keys:
            if len(key) < SHORTEST_KEY:
                raise TandemError(f"an API key has fewer than {SHORTEST_KEY} characters; take longer ones")
        self._digests = [_digest(key) for key in keys]

    @property
    def required(self) -> bool:
        """Whether a request needs a key."""
        return bool(self._digests)

    def accepts(self, key: str) -> bool:
        """Whether a key is one of them, in a time that does not depend on which, nor on how much of it is right."""
        digest = _digest(key)
        return bool(sum([hmac.compare_digest(digest, known) for known in self._digests]))


def _read(file: Path) -> list[str]:
    """The keys of a file, one a line; `#` begins a comment."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TandemError(f"{file}: cannot be read as a file of API keys; check the path and its rights") from error
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise TandemError(f"{file}: has no API key; write one a line, or leave --keys out to let everybody in")
    return keys


def _digest(key: str) -> bytes:
    """Digests have one length, so that comparing them does not tell that of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
