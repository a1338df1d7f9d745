"""The text files of a corpus, read through and looked at before any long work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock

from tandem.config import CorpusConfig, Section
from tandem.corpus.alignment import Window, are_unrelated, describe, find_shift, windows_of_chunk
from tandem.corpus.clean import text_of
from tandem.corpus.languages import Vocabularies
from tandem.corpus.progress import Progress
from tandem.corpus.scan import CHUNK_LINES, Chunk, ScannedPair, ScannedText, chunks_of, raw_lines, raw_pairs, scan
from tandem.corpus.text import Files, Pair, check_file, decoded
from tandem.corpus.work import Work
from tandem.corpus.workers import Workers
from tandem.errors import TandemError

Inputs = Mapping[str, Sequence[Files]]
"""The pairs of files of each split: train, dev, test."""

# A sample of a language, in lines: enough for the words that tell it from another, a moment's work.
_SAMPLE_LINES = 10_000
# Of each line: nobody's sentence is longer, and lines of a megabyte would fill the memory.
_SAMPLE_CHARACTERS = 1000


@dataclass(frozen=True)
class Split:
    """The text of train, dev or test, read through."""

    name: str
    files: Sequence[Files]
    pairs: Sequence[ScannedPair]

    @property
    def texts(self) -> list[tuple[ScannedText, ScannedText]]:
        """Both sides of each pair."""
        return [(pair.source, pair.target) for pair in self.pairs]

    @cached_property
    def chunks(self) -> list[Chunk]:
        """All its lines in stretches."""
        return chunks_of(self.pairs)


class _Scanned(Section):
    texts: list[ScannedText]


def check_files(inputs: Inputs) -> None:
    """Refuse what cannot be read, and a file given twice for a pair."""
    for split, pairs in inputs.items():
        for source, target in pairs:
            check_file(source)
            check_file(target)
            if source.samefile(target):
                raise TandemError(
                    f"--{split} {source} {target}: source and target are the same file; give one file for each language"
                )


def states(inputs: Inputs) -> dict[str, list[int]]:
    """What would change if a file were changed or replaced, which not even a restored date can hide."""
    found = {}
    for path in (path for pairs in inputs.values() for files in pairs for path in files):
        state = path.stat()
        found[str(path)] = [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    return found


def check_unchanged(inputs: Inputs, before: Mapping[str, list[int]]) -> None:
    """Refuse a file that was changed while it was being read; a pipe changes by being read."""
    for name, state in states(inputs).items():
        if Path(name).is_file() and state != before[name]:
            raise TandemError(f"{name}: was changed while it was being read; start again")


def read_split(name: str, files: Sequence[Files], origins: Mapping[Path, str], work: Work, progress: Progress) -> Split:
    """Read all files of a split through, or remember what was found when that was done before."""
    found = work.found(f"read-{name}", _Scanned)
    if found is None:
        paths = [path for pair in files for path in pair]
        texts = _scan_all(name, paths, work, progress)
        named = zip(texts, paths, strict=True)
        found = _Scanned(texts=[text.model_copy(update={"name": origins.get(path, text.name)}) for text, path in named])
        work.finish(f"read-{name}", found)
    sides = iter(found.texts)
    return Split(name, files, [ScannedPair(source, target) for source, target in zip(sides, sides, strict=True)])


def _scan_all(name: str, paths: Sequence[Path], work: Work, progress: Progress) -> list[ScannedText]:
    """Read files side by side: unpacking and checksums leave Python's lock to each other."""
    total = sum(path.stat().st_size for path in paths)
    done, lock = 0, Lock()
    progress(f"read {name}", 0, total, "B")

    def read(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            progress(f"read {name}", done, max(done, total), "B")

    with ThreadPoolExecutor(min(len(paths), 8)) as threads:
        places = [work.path(f"text/{name}-{number}") for number in range(len(paths))]
        return list(threads.map(scan, paths, places, [read] * len(paths)))


def check_alignment(split: Split, settings: CorpusConfig, workers: Workers, progress: Progress) -> None:
    """Refuse files of which line N of one does not translate line N of the other, and say where that begins."""
    if not settings.check_alignment and all(pair.source.lines == pair.target.lines for pair in split.pairs):
        return
    stage, done, total = f"check {split.name}", 0, sum(pair.lines for pair in split.pairs)
    progress(stage, done, total, "lines")
    windows: dict[int, list[Window]] = {number: [] for number in range(len(split.pairs))}
    places = [number for number, pair in enumerate(split.pairs) for _ in range(pair.chunks)]
    for number, chunk, found in zip(places, split.chunks, workers.map(_look_at_chunk, split.chunks), strict=True):
        windows[number] += found
        progress(stage, done := done + chunk.lines, total, "lines")
    for number, (pair, (source, target)) in enumerate(zip(split.pairs, split.files, strict=True)):
        shift = find_shift(windows[number])
        where = describe(shift, source, target) if shift else None
        if pair.source.lines != pair.target.lines:
            raise TandemError(
                f"{source} has {pair.source.lines} lines but {target} has {pair.target.lines}; line N of one must "
                f"translate line N of the other: {where or f'check after line {pair.lines}'}"
            )
        if where is None and are_unrelated(windows[number]):
            where = (
                f"{source} and {target} do not look like translations of each other: line N of one has no more in "
                "common with line N of the other than with any; check that they belong together"
            )
        if where:
            raise TandemError(f"{where}; corpus.check_alignment=false takes them as they are")


def _look_at_chunk(chunk: Chunk) -> list[Window]:
    return windows_of_chunk(chunk.raw_pairs(), chunk.lines, chunk.index * CHUNK_LINES + 1)


def check_held_out(split: Split) -> None:
    """Insist that every line can be read: dev and test are never cleaned, because BLEU is on all of their lines."""
    for pair, files in zip(split.pairs, split.files, strict=True):
        for text, path in zip((pair.source, pair.target), files, strict=True):
            for chunk in range(pair.chunks):
                lines = raw_lines(text, chunk, pair.lines_in(chunk))
                for number, line in enumerate(lines, start=chunk * CHUNK_LINES + 1):
                    decoded(line, path, number)


def check_languages(splits: Sequence[Split], train: Split) -> None:
    """Refuse splits whose languages are clearly swapped against those of the training text."""
    first, *others = (Split(train.name, [files], [pair]) for files, pair in zip(train.files, train.pairs, strict=True))
    vocabularies = Vocabularies(first.files[0], _sample(first))
    for split in (*others, *splits):
        vocabularies.check_not_swapped(split.name, split.files[0], _sample(split))


def _sample(split: Split) -> list[Pair]:
    """The first lines of every chunk, as many as together make a fair sample."""
    each = -(-_SAMPLE_LINES // len(split.chunks))
    raw = (pair for chunk in split.chunks for pair in raw_pairs(chunk.pair, chunk.index, each))
    texts = ((text_of(source), text_of(target)) for source, target in raw)
    return [
        (source[:_SAMPLE_CHARACTERS], target[:_SAMPLE_CHARACTERS])
        for source, target in texts
        if source is not None and target is not None
    ]
