"""Shows examples of what each cleaning rule dropped, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len, set_cell_size

from tandem.config import Section
from tandem.corpus.prepare.cleaning_rules import CONTROL, REPLACEMENT, CleaningRules
from tandem.corpus.text_files import LONGEST_LINE, FilePair, RawLine, RawPair

# Enough to recognise a sentence by; a line may be a megabyte long.
_MOST_CHARACTERS = 400
# A fault further from the start is shown with a little of what comes before it, so that no terminal cuts it off.
_FAR_FAULT, _BEFORE_FAULT = 40, 20
_ELLIPSIS = "…"


@dataclass(frozen=True)
class JudgedFiles:
    """The verdicts on a pair of files, and a way to its lines."""

    files: FilePair
    verdicts: npt.NDArray[np.uint8]
    """One for every line: 0 for a pair that is kept, k for one that the k-th rule drops."""
    fetch: Callable[[Sequence[int]], list[RawPair]]
    """Gives the pairs of lines at ascending positions, which count from 0."""


class DroppedExample(Section):
    """A pair that was dropped, with everything unprintable written out and long lines cut."""

    source_file: str
    target_file: str
    line: int
    """Its number in both files, from 1."""
    source: str
    target: str
    why: str


def explain(rules: CleaningRules, parts: Sequence[JudgedFiles], count: int) -> dict[str, list[DroppedExample]]:
    """Up to `count` examples for each rule, evenly spread over all that it dropped; the same every time."""
    wanted: list[dict[int, str]] = [{} for _ in parts]
    for verdict, name in enumerate(rules.names, start=1):
        dropped = [np.flatnonzero(part.verdicts == verdict) for part in parts]
        ends = np.cumsum([len(lines) for lines in dropped])
        for place in _spread(int(ends[-1]) if parts else 0, count):
            number = int(np.searchsorted(ends, place, side="right"))
            from_end = place - int(ends[number])
            wanted[number][int(dropped[number][from_end])] = name
    examples: dict[str, list[DroppedExample]] = {name: [] for name in rules.names}
    for part, lines in zip(parts, wanted, strict=True):
        positions = sorted(lines)
        for position, pair in zip(positions, part.fetch(positions) if positions else [], strict=True):
            examples[lines[position]].append(_example(part, position, pair, rules.why(pair)))
    return examples


def explain_lines(examples: Mapping[str, Sequence[DroppedExample]], width: int) -> Iterator[str]:
    """The examples for a person, on lines of at most `width` columns (but for the files' names)."""
    for name, found in examples.items():
        yield f"{name.replace('_', ' ')}:" if found else f"{name.replace('_', ' ')}: nothing"
        for example in found:
            yield f"  {example.source_file}:{example.line} {example.target_file}:{example.line}"
            yield _fit(f"    {example.why}", width)
            yield _fit(f"    > {example.source}", width)
            yield _fit(f"    > {example.target}", width)


def _spread(total: int, count: int) -> list[int]:
    """Up to `count` different places among `total`, each in the middle of an equal share."""
    count = min(count, total)
    return [(2 * place + 1) * total // (2 * count) for place in range(count)]


def _example(judged: JudgedFiles, position: int, pair: RawPair, why: str) -> DroppedExample:
    source_file, target_file = (_printable(str(path)) for path in judged.files)
    source, target = (_visible(line) for line in pair)
    return DroppedExample(
        source_file=source_file, target_file=target_file, line=position + 1, source=source, target=target, why=why
    )


def _visible(line: RawLine) -> str:
    """A line as it can be printed: from its first fault if that is far, and with a mark where something was cut."""
    if line is None:
        return f"({LONGEST_LINE:,} bytes or more)"
    text = line.decode("utf-8", "backslashreplace")
    fault = _fault(line, text)
    start = fault - _BEFORE_FAULT if fault > _FAR_FAULT else 0
    cut = text[start : start + _MOST_CHARACTERS]
    return (_ELLIPSIS if start else "") + _printable(cut) + (_ELLIPSIS if start + len(cut) < len(text) else "")


def _fault(line: bytes, text: str) -> int:
    """Where in the text its first damage or control character stands; 0 if it has none."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return len(line[: error.start].decode())
    found = CONTROL.search(text)
    return max(0, text.find(REPLACEMENT)) if found is None else found.start()


def _printable(text: str) -> str:
    """Write out what a terminal would not show, or obey."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _fit(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + _ELLIPSIS
