"""Takes pairs out of the training text to measure with, so that no source sentence is on two sides."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO

from tandem.corpus.progress import Progress, unwatched
from tandem.corpus.text import BOM, LONGEST_LINE, Files, RawLine, read_line
from tandem.errors import TandemError
from tandem.files import whole_file

# Lines between two reports: a few a second.
_LINES_A_REPORT = 1 << 16
# Of a hash of a sentence: with 64 bits, two sentences of a hundred million share one in one corpus of 3,700.
_HASH_BYTES = 8
# Sentences remembered beyond those to hold out, in case that many do not fit; a hundred bytes each.
_SPARE = 10_000
# Stands in training for a line that was too long to be read: in its place, and still too long, which is what later
# drops and counts it.
_TOO_LONG = b"?" * (LONGEST_LINE + 1)


@dataclass(frozen=True)
class Undivided:
    """A training text from which pairs are taken."""

    files: Files
    names: tuple[str, str]
    """What people know the files by."""
    rest: Files
    """Where the pairs go that are left."""


@dataclass(frozen=True)
class Share:
    """What a split takes."""

    pairs: int
    files: Files
    """Where these pairs go."""


def hold_out(training: Sequence[Undivided], shares: Mapping[str, Share], progress: Progress = unwatched) -> None:
    """Deal the pairs of the training texts to each split, at most as many as it takes, and to the rest.

    A hash of the source decides, not the order: the same sentences are held out of the same text, however it is
    divided in files, and all translations of a sentence stay together.
    """
    wanted = {split: share.pairs for split, share in shares.items()}
    chosen, pairs = _choose(training, wanted, progress)
    if len(set(chosen.values())) < len(wanted) or pairs < 2 * sum(wanted.values()):
        asked = " and ".join(f"{count} for {split}" for split, count in wanted.items())
        raise TandemError(f"{pairs} training pairs: too few to hold out {asked}; lower held_out or give texts")
    with ExitStack() as stack:

        def opened(files: Files) -> list[BinaryIO]:
            return [stack.enter_context(whole_file(path)) for path in files]

        held = {split: opened(share.files) for split, share in shares.items()}
        for text in training:
            rest = opened(text.rest)
            for source, target in _pairs(text, "hold out pairs", progress):
                split = None if source is None else chosen.get(_hash(source))
                for out, line in zip(held[split] if split else rest, (source, target), strict=True):
                    out.write((_TOO_LONG if line is None else line) + b"\n")


def _choose(training: Sequence[Undivided], wanted: Mapping[str, int], progress: Progress) -> tuple[dict[int, str], int]:
    """The split of each sentence that is held out, by its hash, never more pairs than wanted; and the pairs there are.

    Only the sentences of the smallest hashes are remembered, more than can be needed: some have more translations
    than there is room for.
    """
    too_many = sum(wanted.values()) + 1
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
    chosen: dict[int, str] = {}
    left = dict(wanted)
    for key in sorted(counts):
        for split in left:
            if counts[key] <= left[split]:
                chosen[key] = split
                left[split] -= counts[key]
                break
    return chosen, pairs


def _hash(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line.strip(), digest_size=_HASH_BYTES).digest())


def _is_sentence(line: RawLine) -> bool:
    """Whether a line is text that can be shown: UTF-8, not empty, no control characters."""
    try:
        text = (line or b"").strip().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return bool(text) and text.isprintable()


def _pairs(text: Undivided, stage: str, progress: Progress) -> Iterator[tuple[RawLine, RawLine]]:
    """The lines of two texts in step."""
    stage = f"{stage} of {text.files[0].stem}"
    size = text.files[0].stat().st_size
    count = 0
    with text.files[0].open("rb") as source, text.files[1].open("rb") as target:
        for file in (source, target):
            file.seek(len(BOM) if file.peek(len(BOM)).startswith(BOM) else 0)
        while source.peek(1) and target.peek(1):
            yield read_line(source), read_line(target)
            count += 1
            if count % _LINES_A_REPORT == 0:
                progress(stage, source.tell(), size, "B")
        progress(stage, size, size, "B")
        counts = [count + _lines_left(file) for file in (source, target)]
    if counts[0] != counts[1]:
        names = f"{text.names[0]} has {counts[0]} lines but {text.names[1]} has {counts[1]}"
        raise TandemError(f"{names}; line N of one must translate line N of the other: check the corpus' texts")


def _lines_left(file: BufferedReader) -> int:
    count = 0
    while file.peek(1):
        read_line(file)
        count += 1
    return count
