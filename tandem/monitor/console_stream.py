"""A stream to a terminal, pipe or file that never blocks whoever prints: what is not read in time is lost, and counted.

A pipe that nobody reads, a terminal stopped by Ctrl-S or a dead connection would otherwise hold up the training, and
even the saving at its end, or a launcher that has to keep in touch with its hosts.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from rich.console import Console

# Text that waits for its reader at most: some hundred lines.
WAITING_BYTES = 1 << 16
# Longest wait at the end for a reader who has something left to read.
FLUSH_SECONDS = 1.0
# The reader is gone, or the terminal is: nothing that is written later would arrive. A full disk may have room again.
GONE = {errno.EPIPE, errno.EIO, errno.EBADF}


class ConsoleStream(io.TextIOBase):
    """Hands text to a thread that writes it to a file's descriptor; a closed pipe swallows all of it."""

    def __init__(self, file: TextIO) -> None:
        file.flush()
        # A descriptor of its own: the thread may still be writing when the file has long been closed.
        self._file, self._descriptor = file, os.dup(file.fileno())
        self._waiting = b""
        self._bytes = 0
        """Bytes that wait or are being written."""
        self._lost = 0
        """Lines that found no room, here or on a full disk, since text was last written."""
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
        self._waiting += data
        self._bytes += len(data)
        self._changed.notify_all()

    def _write_on(self) -> None:
        while data := self._next():
            self._write(data)
        os.close(self._descriptor)

    def _next(self) -> bytes:
        """All that waits, as soon as there is something; empty at the end.

        All at once, because a busy process lets this thread run only some hundred times a second.
        """
        with self._changed:
            while not self._waiting and not self._over:
                self._changed.wait()
            data, self._waiting = self._waiting, b""
            return data

    def _write(self, data: bytes) -> None:
        while data:
            try:
                written = os.write(self._descriptor, data)
            except BlockingIOError:
                # A program that shares the terminal has made it so for all.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
                continue
            except OSError as error:
                self._give_up(data, gone=error.errno in GONE)
                return
            data = data[written:]
            with self._changed:
                self._bytes -= written
                if self._lost and not data and not self._waiting:
                    lines, self._lost = self._lost, 0
                    self._append(f"({lines:,} lines are missing here: they could not be written in time)\n".encode())
                self._changed.notify_all()

    def _give_up(self, data: bytes, gone: bool) -> None:
        """Go on without what could not be written: a full disk may have room again; a reader who is gone stays away."""
        with self._changed:
            self._lost += data.count(b"\n")
            if gone:
                self._closed_pipe, self._waiting = True, b""
            self._bytes = len(self._waiting)
            self._changed.notify_all()


def never_blocking(console: Console) -> ConsoleStream | None:
    """Make a console print through a stream that never blocks; None if it prints to memory, which never does."""
    stream = _stream_to(cast(TextIO, console.file))
    if stream is not None:
        console.file = cast(TextIO, stream)
    return stream


@contextmanager
def never_blocking_output() -> Iterator[None]:
    """Have this process print to standard output and standard error through streams that never block."""
    with ExitStack() as stack:
        for file, redirected in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if (stream := _stream_to(file)) is not None:
                stack.callback(stream.finish)
                stack.enter_context(redirected(cast(TextIO, stream)))
        yield


def _stream_to(file: TextIO) -> ConsoleStream | None:
    try:
        file.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    return ConsoleStream(file)
