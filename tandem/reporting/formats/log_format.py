"""A log format: by what its files are recognised, and how they are read. tandem.registry.FORMATS lists all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path

from tandem.errors import TandemError
from tandem.registry import FORMATS
from tandem.reporting.run_record import RunRecord

# Packages offer formats of their own as entry points of this group.
ENTRY_POINTS = "tandem.formats"


@dataclass(frozen=True)
class Candidate:
    """A file, or several together, that may be a run."""

    path: Path
    files: Sequence[Path]
    read: Callable[[], RunRecord]

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files if file.exists())


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """The log of one program. A new one is a module of its own and one line in tandem.registry.FORMATS."""

    title: str
    """Its name in the list of what can be read, e.g. `a Marian log`."""
    read: Callable[[Path], RunRecord]
    lines: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions of lines that only this program writes, each by a literal part of such lines: to look for
    that first is ten times as fast."""
    magic: bytes = b""
    """What the first bytes of a binary file hold."""
    file_name: str = ""
    """A part of file names that is proof enough in a directory."""
    is_launcher: bool = False
    """Whether it writes around the output of other programs, so that it counts only where no other is recognised."""
    group: Callable[[Sequence[Path], Path], Iterator[Candidate]] | None = None
    """Puts files below a directory together that are one run; each is one by itself without it."""

    def __post_init__(self) -> None:
        for pattern in self.lines.values():
            re.compile(pattern)  # a fault in it is this format's, and not of whoever searches for all formats

    def candidates(self, files: Sequence[Path], top: Path) -> Iterator[Candidate]:
        """The runs in files of this format below a directory."""
        if self.group is not None:
            return self.group(files, top)
        return (Candidate(path, [path], partial(self.read, path)) for path in files)


@cache
def known_formats() -> tuple[list[LogFormat], list[str]]:
    """All formats, those of installed packages first, so that they can replace one that comes with Tandem.

    One of a package that is broken must not keep others from being read: it is left out, with a sentence that says so.
    """
    found: list[LogFormat] = []
    left_out: list[str] = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            known = FORMATS.get(entry.value)
            if not isinstance(known, LogFormat):
                raise TandemError(f"{entry.value}: a {type(known).__name__}, not a LogFormat; name one")
            found.append(known)
        except TandemError as error:
            package = "" if entry.dist is None else f" of the package {entry.dist.name}"
            left_out.append(f"the log format {entry.name}{package} was left out ({error})")
    return [*found, *(FORMATS.get(name) for name in FORMATS.names)], left_out
