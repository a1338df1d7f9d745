"""Reads journals that are still being written: at each look, what has come since the last one."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tandem.monitor.journal import parse_line

RANK_FILE = re.compile(r"rank-(\d+)\.jsonl")
# A file is known by its first bytes: they hold the millisecond of its first record, so no two are alike.
HEAD_BYTES = 64
# The kind stands right after the time, and can be read there without parsing the line.
KIND = re.compile(rb'\{"time": "[^"]*", "kind": "([a-z]+)"')


class Followed:
    """All journals of a directory, of which each whole line is told once.

    Of the kinds in `newest_only` just the last line of each look is told, for who needs only the latest: a day of
    samples is then passed over in a second.
    """

    def __init__(self, directory: Path, newest_only: Collection[str] = ()) -> None:
        self._directory = directory
        self._newest_only = frozenset(kind.encode() for kind in newest_only)
        self._files: dict[int, _GrowingFile] = {}

    def news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rank and record of every line since the last look, of all ranks by time; to be used up before the next.

        A line is told once it is whole. A file that appears later is picked up, and one that was replaced or cut is
        read anew from its start.
        """
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                name = RANK_FILE.fullmatch(path.name)
                if name is not None and path.is_file():
                    self._files.setdefault(int(name[1]), _GrowingFile(path))
        told = (self._told(rank, file) for rank, file in sorted(self._files.items()))
        return heapq.merge(*told, key=lambda one: str(one[1].get("time", "")))

    def _told(self, rank: int, file: _GrowingFile) -> Iterator[tuple[int, dict[str, Any]]]:
        held: dict[bytes, bytes] = {}
        for line in file.new_lines():
            kind = KIND.match(line)
            if kind is not None and kind[1] in self._newest_only:
                held[kind[1]] = line
            elif (record := parse_line(line)) is not None:
                yield rank, record
        for line in held.values():
            if (record := parse_line(line)) is not None:
                yield rank, record


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
            # What is written while this reads waits for the next look: otherwise a look might never end.
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
