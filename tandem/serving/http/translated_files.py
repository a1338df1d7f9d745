"""Files that were translated, kept for a while until they are fetched."""

from __future__ import annotations

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

KEPT_SECONDS = 600
KEPT_BYTES = 64 << 20
FORMATS = {".txt": "text/plain; charset=utf-8", ".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8"}


@dataclass(frozen=True)
class TranslatedFile:
    """A file that waits to be fetched."""

    name: str
    kind: str
    content: bytes
    made: float


class TranslatedFiles:
    """The files that were translated last, in memory, under names that nobody can guess."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: OrderedDict[str, TranslatedFile] = OrderedDict()

    def add(self, name: str, suffix: str, content: bytes) -> str:
        """Keep a file; what it is fetched by."""
        plain = re.sub(r"[^\w.-]", "_", name.rpartition("/")[2])[-80:] or f"file{suffix}"
        key = f"{secrets.token_urlsafe(18)}.{plain}"
        self._files[key] = TranslatedFile(plain, FORMATS[suffix], content, self._clock())
        self._forget()
        return key

    def get(self, key: str) -> TranslatedFile | None:
        """The file, if it is still kept."""
        self._forget()
        return self._files.get(key)

    def _forget(self) -> None:
        kept = sum(len(file.content) for file in self._files.values())
        while self._files:
            oldest = next(iter(self._files.values()))
            if kept <= KEPT_BYTES and self._clock() - oldest.made <= KEPT_SECONDS:
                return
            kept -= len(oldest.content)
            self._files.popitem(last=False)
