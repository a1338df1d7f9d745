"""Takes pairs out of the training text to measure with, so that no source sentence is on two sides."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, BinaryIO

from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.corpus.text_files import BOM, LONGEST_LINE, FilePair, RawLine, RawPair, read_lines
from tandem.errors import TandemError
from tandem.storage import whole_file

# Lines between two reports: a few a second.
_LINES_A_REPORT = 1 << 16
# With 64 bits, two sentences of a hundred million share a hash in one corpus of 3,700.
_HASH_BYTES = 8
# Sentences remembered beyond those to hold out, in case that many do not fit; a hundred bytes each.
_SPARE = 10_000
# Stands in training for a line that was too long to be read: in its place, and still too long, which is what later
# drops and counts it.
_TOO_LONG = b"?" * (LONGEST_LINE + 1)
_NO_LINE: Any = object()


@dataclass(frozen=True)
class UndividedText:
    """A training text from which pairs are taken."""

    files: FilePair
    names: Sequence[str]
    """What people know the files by."""
    rest: FilePair
    """Where the pairs go that are left."""


@dataclass(frozen=True)
class HeldOut:
    """How many pairs a split takes, and where they go."""

    pairs: int
    files: FilePair


def hold_out(
    training: Sequence[UndividedText], splits: Mapping[str, HeldOut], progress: ProgressCallback = no_progress
) -> None:
    """Deal the pairs of the training texts to each split, at most as many as it takes, and to the rest.

    A hash of the source decides, not the order: the same sentences are held out of the same text, however it is
    divided in files, and all translations of a sentence stay together.
    """
    wanted = {name: split.pairs for name, split in splits.items()}
    counts, pairs = _count_candidates(training, sum(wanted.values()), progress)
    chosen = _choose(counts, wanted)
    if len(set(chosen.values())) < len(wanted) or pairs < 2 * sum(wanted.values()):
        asked = " and ".join(f"{count} for {name}" for name, count in wanted.items())
        raise TandemError(f"{pairs} training pairs: too few to hold out {asked}; lower held_out or give texts")
    with ExitStack() as stack:

        def opened(files: FilePair) -> list[BinaryIO]:
            return [stack.enter_context(whole_file(path)) for path in files]

        held = {name: opened(split.files) for name, split in splits.items()}
        for text in training:
            rest = opened(text.rest)
            for source, target in _pairs(text, "hold out pairs", progress):
                name = None if source is None else chosen.get(_hash(source))
                for out, line in zip(held[name] if name else rest, (source, target), strict=True):
                    out.write((_TOO_LONG if line is None else line) + b"\n")


def _count_candidates(
    training: Sequence[UndividedText], wanted: int, progress: ProgressCallback
) -> tuple[dict[int, int], int]:
    """How many pairs the sentences of the smallest hashes have, by hash; and how many pairs there are.

    More sentences are remembered than can be needed: some have more translations than there is room for.
    """
    too_many = wanted + 1
    room = too_many + _SPARE
    counts: dict[int, int] = {}
    largest: list[int] = []
    pairs = 0
    for text in training:
        for source, target in _pairs(text, "choose pairs to hold out", progress):
            pairs += 1
            if source is None:
                continue
            key = _hash(source)
            if key not in counts:
                if len(counts) == room and key > -largest[0]:
                    continue
                counts[key] = 0
                heapq.heappush(largest, -key)
                if len(counts) > room:
                    del counts[-heapq.heappop(largest)]
            # A pair that nobody could be measured with keeps its sentence, with all translations, in training.
            counts[key] += 1 if _is_sentence(source) and _is_sentence(target) else too_many
    return counts, pairs


def _choose(counts: Mapping[int, int], wanted: Mapping[str, int]) -> dict[int, str]:
    """The split of each sentence that is held out, by its hash, never more pairs than wanted."""
    chosen: dict[int, str] = {}
    left = dict(wanted)
    for key in sorted(counts):
        name = next((name for name in left if counts[key] <= left[name]), None)
        if name:
            chosen[key] = name
            left[name] -= counts[key]
    return chosen


def _hash(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line.strip(), digest_size=_HASH_BYTES).digest())


def _is_sentence(line: RawLine) -> bool:
    """Whether a line is text that can be shown: UTF-8, not empty, no control characters."""
    try:
        text = (line or b"").strip().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return bool(text) and text.isprintable()


def _pairs(text: UndividedText, stage: str, progress: ProgressCallback) -> Iterator[RawPair]:
    """The lines of two texts in step."""
    stage = f"{stage} of {text.files[0].stem}"
    size = text.files[0].stat().st_size
    with text.files[0].open("rb") as source, text.files[1].open("rb") as target:
        for file in (source, target):
            file.seek(len(BOM) if file.peek(len(BOM)).startswith(BOM) else 0)
        sides = (read_lines(source), read_lines(target))
        for number, pair in enumerate(zip_longest(*sides, fillvalue=_NO_LINE), start=1):
            if _NO_LINE in pair:
                counts = [number - (line is _NO_LINE) for line in pair]
                lines = [count + sum(1 for _ in rest) for count, rest in zip(counts, sides, strict=True)]
                names = f"{text.names[0]} has {lines[0]} lines but {text.names[1]} has {lines[1]}"
                raise TandemError(f"{names}; line N of one must translate line N of the other: check the corpus' texts")
            yield pair
            if number % _LINES_A_REPORT == 0:
                progress(stage, source.tell(), size, "B")
        progress(stage, size, size, "B")
