"""The console's stream: pipes that nobody reads, or that are closed, hold up nobody."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
from collections.abc import Iterator
from io import StringIO
from typing import TextIO

import pytest
from rich.console import Console

from tandem.monitor.console_stream import ConsoleStream, never_blocking
from tandem.monitor.console_view import ConsoleView
from tandem.monitor.records import Noticed
from tests.monitor.example_records import example

LINES = 20_000


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """The two ends of a small pipe."""
    receiver, sender = os.pipe()
    fcntl.fcntl(sender, fcntl.F_SETPIPE_SZ, 4096)
    with open(receiver, encoding="utf-8") as reads, open(sender, "w", encoding="utf-8") as writes:
        yield reads, writes


def test_what_nobody_reads_is_lost_and_counted(pipe: tuple[TextIO, TextIO]) -> None:
    reads, writes = pipe
    stream = ConsoleStream(writes)
    for number in range(LINES):
        stream.write(f"line {number}\n")
    read, lost = 0, None
    while lost is None:
        line = reads.readline()
        lost = re.fullmatch(r"\(([\d,]+) lines are missing here: they could not be written in time\)\n", line)
        read += lost is None
    assert read + int(lost[1].replace(",", "")) == LINES
    assert 0 < read < LINES
    # Once it is read again nothing is missing.
    stream.write("at last\n")
    assert reads.readline() == "at last\n"


def test_the_end_does_not_wait_for_a_reader_who_is_not_there(pipe: tuple[TextIO, TextIO]) -> None:
    stream = ConsoleStream(pipe[1])
    stream.write("x" * 10_000)
    stream.finish()


def test_the_end_waits_for_a_reader_who_is(pipe: tuple[TextIO, TextIO]) -> None:
    reads, writes = pipe
    stream = ConsoleStream(writes)
    stream.write("last words\n")
    stream.finish()
    assert reads.readline() == "last words\n"


def test_a_closed_pipe_swallows_all(pipe: tuple[TextIO, TextIO]) -> None:
    reads, writes = pipe
    reads.close()
    stream = ConsoleStream(writes)
    for _ in range(LINES):
        stream.write("nobody hears\n")
    stream.finish()


def everything_read(stream: ConsoleStream, reads: TextIO, writes: TextIO) -> str:
    """What a reader finds until the end of the stream."""
    # The reader sees an end when the last descriptor is closed: the stream's own, when it has written all.
    writes.close()
    ending = threading.Thread(target=stream.finish)
    ending.start()
    text = reads.read()
    ending.join()
    return text


def test_a_terminal_that_another_program_made_non_blocking_is_waited_for(pipe: tuple[TextIO, TextIO]) -> None:
    reads, writes = pipe
    os.set_blocking(writes.fileno(), False)
    stream = ConsoleStream(writes)
    text = "".join(f"line {number}\n" for number in range(5000))
    stream.write(text)
    assert everything_read(stream, reads, writes) == text


def test_a_disk_that_is_full_for_a_moment_loses_lines_and_not_the_rest(
    pipe: tuple[TextIO, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = pipe
    stream, tried, write = ConsoleStream(writes), threading.Event(), os.write

    def full_at_first(descriptor: int, data: bytes) -> int:
        if data == b"lost\nlost\n" and not tried.is_set():
            tried.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full_at_first)
    stream.write("lost\nlost\n")
    assert tried.wait(60)
    stream.write("kept\n")
    missing = "(2 lines are missing here: they could not be written in time)\n"
    assert everything_read(stream, reads, writes) == f"kept\n{missing}"


def test_a_view_prints_through_it_and_gives_the_console_back(pipe: tuple[TextIO, TextIO]) -> None:
    reads, writes = pipe
    console = Console(file=writes)
    view = ConsoleView(console)
    view.show(example(Noticed, message="something"))
    view.close()
    assert reads.readline() == "note: something\n"
    assert console.file is writes


def test_memory_is_written_to_directly() -> None:
    assert never_blocking(Console(file=StringIO())) is None
