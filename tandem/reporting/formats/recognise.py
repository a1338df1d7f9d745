"""Recognises the format of a file by its content."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tandem.errors import TandemError
from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.metrics_table import FORMAT as TABLE
from tandem.reporting.formats.metrics_table import fault_of_table
from tandem.reporting.formats.shared.log_lines import head_of, is_text, lines_of

# Names of logs in a directory; the other files of a run are text, weights and settings, and may be many and large.
_LOG_SUFFIXES = frozenset({".log", ".out", ".err", ".txt", ".csv", ".tsv", ".jsonl", ""})
# A binary file names its format within so many bytes, behind lengths and checksums.
_MAGIC_WITHIN = 64
# A log that has no known line among so many is of none of these programs.
_FARTHEST = 500_000
# Lines that are enough to be sure; the rest of a long log need not be searched.
_ENOUGH = 50


class Recogniser:
    """Recognises which of the known formats a file has."""

    def __init__(self, formats: Sequence[LogFormat], left_out: Sequence[str] = ()) -> None:
        self.formats = formats
        self._lines = [
            (literal, re.compile(pattern), place)
            for place, known in enumerate(formats)
            for literal, pattern in known.lines.items()
        ]
        *titles, last = ("a Tandem run", *(known.title for known in formats if not known.is_launcher))
        self.readable = "; ".join([f"tandem report reads {', '.join(titles)}, and {last}", *left_out])

    def format_of(self, path: Path) -> LogFormat:
        """The format of a file; an error that says what can be read if it has none."""
        try:
            head = head_of(path)
            if not head.strip():
                raise TandemError(f"{path} is empty; {self.readable}")
            for known in self.formats:
                if known.magic and known.magic in head[:_MAGIC_WITHIN]:
                    return known
            if not is_text(head):
                raise TandemError(f"{path} is a binary file, not a log; {self.readable}")
            return self._format_of_text(path)
        except OSError as error:
            raise TandemError(f"{path} cannot be read: {error.strerror}") from error

    def in_directory(self, path: Path) -> LogFormat | None:
        """The format of a file of a directory; None if it has none, or is not named like a log."""
        for known in self.formats:
            if known.file_name and known.file_name in path.name:
                return known
        try:
            return self.format_of(path) if path.suffix in _LOG_SUFFIXES else None
        except TandemError:
            return None

    def _format_of_text(self, path: Path) -> LogFormat:
        counts: Counter[int] = Counter()
        first: list[str] = []
        for line in islice(lines_of(path), _FARTHEST):
            place = self._format_of_line(line)
            if len(first) < 2 and line.strip() and not line.startswith("#"):
                first.append(line)
                if len(first) == 2 and not counts and place is None and fault_of_table(first) == "":
                    return TABLE
            if place is not None:
                counts[place] += 1
                if counts[place] >= _ENOUGH and not self.formats[place].is_launcher:
                    break
        found = sorted(counts, key=lambda place: (self.formats[place].is_launcher, -counts[place], place))
        if found:
            return self.formats[found[0]]
        raise TandemError(f"{path} {fault_of_table(first) or 'is none of the logs that are known'}; {self.readable}")

    def _format_of_line(self, line: str) -> int | None:
        """The place in the table of the format that such a line belongs to."""
        for literal, pattern, place in self._lines:
            if literal in line and pattern.search(line):
                return place
        return None
