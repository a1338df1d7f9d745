"""Pipes that stand for terminals: read by somebody, by nobody, or closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


@contextmanager
def opened_pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """The two ends of a pipe, the one to read from first."""
    receiver, sender = os.pipe()
    reads, writes = os.fdopen(receiver, encoding="utf-8"), os.fdopen(sender, "w", encoding="utf-8")
    try:
        yield reads, writes
    finally:
        # In this order, so that whoever is still writing comes back, with an error.
        reads.close()
        with suppress(BrokenPipeError):
            writes.close()


@contextmanager
def unread_pipe() -> Iterator[TextIO]:
    """A file to print to that is full, and that nobody reads."""
    with opened_pipe() as (_, writes):
        os.set_blocking(writes.fileno(), False)
        with suppress(BlockingIOError):
            while True:
                os.write(writes.fileno(), b"x" * 1024)
        os.set_blocking(writes.fileno(), True)
        yield writes
