"""Reads logs line by line, however long, torn or badly encoded they are, and the numbers and moments in them."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

# A progress bar redrawn for hours, or no text at all, may be one line of many megabytes; no log entry is this long.
LONGEST_LINE = 100_000
# Text has no NUL bytes; what is not text has one early. A log may hold some further down, where a machine lost power.
_HEAD_BYTES = 8192
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_MOST_DIGITS = 18

NUMBER = r"[-+]?(?:nan|inf(?:inity)?|(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
"""A number in a log, perhaps with commas between the thousands."""

_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")


def head_of(path: Path) -> bytes:
    """The first bytes of a file, by which its kind is known."""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def is_text(head: bytes) -> bool:
    """Whether a file that begins like this is text."""
    return head.startswith(_UTF16_MARKS) or b"\0" not in head


def raw_lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file with their ends; bytes that are no text become a replacement character.

    A carriage return ends a line, as progress bars are redrawn with it.
    """
    encoding = "utf-16" if head_of(path).startswith(_UTF16_MARKS) else "utf-8-sig"
    with path.open(encoding=encoding, errors="replace") as file:
        while line := file.readline(LONGEST_LINE):
            yield line


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a log without their ends.

    A last line without its end may be cut in the middle of a number, which would then be read as another one: the
    last word of such a line is left out.
    """
    for line in raw_lines_of(path):
        if line.endswith("\n"):
            yield line[:-1]
        elif len(line) == LONGEST_LINE or line[-1].isspace():
            yield line
        else:
            yield line[: -len(line.rsplit(maxsplit=1)[-1])]


def number(text: str) -> float | None:
    """A text as a number; None if it is none."""
    try:
        return float(text.strip().rstrip("%").replace(",", ""))
    except ValueError:
        return None


def append_number(points: list[tuple[float, float]], at: float, found: re.Match[str] | None) -> None:
    """Append the number that the last group of a pattern has found, if it has found one."""
    if found is not None and (value := number(found[found.lastindex or 0])) is not None:
        points.append((at, value))


def count(text: str) -> int | None:
    """A text as a whole number; None if it is none, or has more digits than any count of things."""
    digits = text.strip().replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else None


def moment(line: str) -> float | None:
    """The first moment in a line as Unix time. Logs do not name their zone: UTC is taken, as differences count."""
    found = _MOMENT.search(line)
    if found is None:
        return None
    *fields, fraction = found.groups()
    year, month, day, hour, minute, second = (int(field) for field in fields)
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return whole + (float(f"0.{fraction}") if fraction else 0.0)


def log_of(perplexity: float) -> float:
    """The loss of a perplexity; NaN, as evidence of a fault, for what is no perplexity."""
    return math.log(perplexity) if perplexity > 0 else math.nan


def listed(words: list[str]) -> str:
    """Words as an enumeration: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
