"""A stream to a terminal, pipe or file that never blocks whoever prints: what is not read in time is lost, and counted.

A pipe that nobody reads, a terminal stopped by Ctrl-S or a dead connection would otherwise hold up the training, and
even the saving at its end.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections import deque
from typing import TextIO, cast

from rich.console import Console

# Text that waits for its reader at most: some hundred lines.
WAITING_BYTES = 1 << 16
# Longest wait at the end for a reader who has something left to read.
FLUSH_SECONDS = 1.0


class ConsoleStream(io.TextIOBase):
    """Hands text to a thread that writes it to a file's descriptor; a closed pipe swallows all of it."""

    def __init__(self, file: TextIO) -> None:
        file.flush()
        # A descriptor of its own: the thread may still be writing when the file has long been closed.
        self._file, self._descriptor = file, os.dup(file.fileno())
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        """Bytes that wait or are being written."""
        self._lost = 0
        """Lines that found no room since text was last written."""
        self._changed = threading.Condition()
        self._closed_pipe = False
        self._over = False
        threading.Thread(target=self._write_on, name="console", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._file.encoding

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        data = text.encode(self.encoding, errors="replace")
        with self._changed:
            if self._bytes + len(data) > WAITING_BYTES:
                self._lost += text.count("\n")
            elif not self._closed_pipe:
                self._append(data)
        return len(text)

    def flush(self) -> None:
        """Do nothing: text is on its way, and nobody waits for it."""

    def finish(self) -> None:
        """Wait until all is written, as long as somebody reads, and write no more."""
        with self._changed:
            unwritten = self._bytes + 1
            # A reader who makes progress is waited for, one who does not gets a second.
            while self._bytes and self._bytes < unwritten:
                unwritten = self._bytes
                self._wait_for_less(unwritten)
            self._over = True
            self._changed.notify_all()

    def _wait_for_less(self, unwritten: int) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS
        while self._bytes >= unwritten and (left := deadline - time.monotonic()) > 0:
            self._changed.wait(left)

    def _append(self, data: bytes) -> None:
        self._waiting.append(data)
        self._bytes += len(data)
        self._changed.notify_all()

    def _write_on(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._over:
                        os.close(self._descriptor)
                        return
                    self._changed.wait()
                data = self._waiting.popleft()
            try:
                while data:
                    written = os.write(self._descriptor, data)
                    data = data[written:]
                    with self._changed:
                        self._bytes -= written
                        if self._lost and not data and not self._waiting:
                            lines, self._lost = self._lost, 0
                            self._append(f"({lines:,} lines are missing here: nobody read them)\n".encode())
                        self._changed.notify_all()
            except OSError:
                # The reader has seen enough, the connection is gone, or the disk is full: the training goes on.
                with self._changed:
                    self._closed_pipe, self._bytes = True, 0
                    self._waiting.clear()
                    self._changed.notify_all()


def never_blocking(console: Console) -> ConsoleStream | None:
    """Make a console print through a stream that never blocks; None if it prints to memory, which never does."""
    try:
        console.file.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    stream = ConsoleStream(cast(TextIO, console.file))
    console.file = cast(TextIO, stream)
    return stream
