"""Follows journals that are still being written, as `tail -f` does."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO

from tandem.layout import journal_files
from tandem.monitor.journal_reader import kind_of, time_text

# A file is known by its first bytes: they hold the millisecond of its first record, so no two are alike.
HEAD_BYTES = 64


class JournalFollower:
    """Reads the new lines of all journals in a directory.

    Of the kinds in `newest_only` just the last line of each rank is read: a day of samples then takes a second.
    """

    def __init__(self, directory: Path, newest_only: Container[str | None] = ()) -> None:
        self._directory = directory
        self._newest_only = newest_only
        self._files: dict[int, _GrowingFile] = {}

    def new_lines(self) -> Iterator[tuple[int, bytes]]:
        """Rank and content of every line since the last call, of all ranks by time; to be used up before the next call.

        A line comes once it is whole. A file that appears later is picked up, and one that was replaced or cut is
        read anew from its start.
        """
        for rank, path in journal_files(self._directory).items():
            if path.is_file():
                self._files.setdefault(rank, _GrowingFile(path))
        lines = (self._new_lines_of(rank, file) for rank, file in sorted(self._files.items()))
        return heapq.merge(*lines, key=lambda line: time_text(line[1]))

    def _new_lines_of(self, rank: int, file: _GrowingFile) -> Iterator[tuple[int, bytes]]:
        newest: dict[str | None, bytes] = {}
        for line in file.new_lines():
            kind = kind_of(line)
            if kind in self._newest_only:
                newest[kind] = line
            else:
                yield rank, line
        for line in newest.values():
            yield rank, line


class _GrowingFile:
    """A file of lines, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._head = path, 0, b""

    def new_lines(self) -> Iterator[bytes]:
        try:
            file = self._path.open("rb")
        except (FileNotFoundError, IsADirectoryError):
            self._offset = 0
            return
        with file:
            # What is written while this reads waits for the next call: otherwise a call might never end.
            size = file.seek(0, 2)
            if size < self._offset or not self._is_the_same(file):
                self._offset = 0
            file.seek(self._offset)
            while self._offset < size:
                line = file.readline()
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                yield line
            file.seek(0)
            self._head = file.read(min(self._offset, HEAD_BYTES))

    def _is_the_same(self, file: BinaryIO) -> bool:
        file.seek(0)
        return file.read(len(self._head)) == self._head
