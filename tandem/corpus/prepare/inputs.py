"""The text files of a corpus, read through and checked before any long work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

from tandem.config import CorpusConfig, Section
from tandem.corpus.prepare.alignment import AlignmentWindow, are_unrelated, describe, find_shift, windows_of_chunk
from tandem.corpus.prepare.cleaning_rules import text_of
from tandem.corpus.prepare.languages import WordFrequencies
from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.scan import CHUNK_LINES, Chunk, ScannedPair, ScannedText, Split, all_lines, scan
from tandem.corpus.prepare.stage_runner import StageRunner
from tandem.corpus.progress import ProgressCallback
from tandem.corpus.text_files import CorpusTexts, FilePair, SentencePair, check_file, decoded, option_of
from tandem.errors import TandemError

# A sample of a language, in lines: enough for the words that tell it from another, a moment's work.
_SAMPLE_LINES = 10_000
# Nobody's sentence is longer, and lines of a megabyte would fill the memory.
_SAMPLE_CHARACTERS = 1000


class _ScannedTexts(Section):
    texts: list[ScannedText]


def check_files(texts: CorpusTexts) -> None:
    """Refuse what cannot be read, and a file given twice for a pair."""
    for split, pairs in texts.splits.items():
        for source, target in pairs:
            check_file(source)
            check_file(target)
            if source.samefile(target):
                raise TandemError(
                    f"{option_of(split)} {source} {target}: source and target are the same file; "
                    "give one file for each language"
                )


def file_states(texts: CorpusTexts) -> dict[str, list[int]]:
    """What would change if a file were changed or replaced, which not even a restored date can hide."""
    found = {}
    for path in (path for pairs in texts.splits.values() for files in pairs for path in files):
        state = path.stat()
        found[str(path)] = [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    return found


def check_unchanged(texts: CorpusTexts, before: Mapping[str, list[int]]) -> None:
    """Refuse a file that was changed while it was being read; a pipe changes by being read."""
    for name, state in file_states(texts).items():
        if Path(name).is_file() and state != before[name]:
            raise TandemError(f"{name}: was changed while it was being read; start again")


def read_split(
    name: str, files: Sequence[FilePair], origins: Mapping[Path, str], log: ResumeLog, progress: ProgressCallback
) -> Split:
    """Read all files of a split through, or remember what was found when that was done before."""
    found = log.read(f"read-{name}", _ScannedTexts)
    if found is None:
        texts = _scan_all(name, [path for pair in files for path in pair], log, progress)
        named = [text.model_copy(update={"name": origins.get(text.file, text.name)}) for text in texts]
        log.finish(f"read-{name}", found := _ScannedTexts(texts=named))
    sides = iter(found.texts)
    return Split(name, [ScannedPair(source, target) for source, target in zip(sides, sides, strict=True)])


def _scan_all(name: str, paths: Sequence[Path], log: ResumeLog, progress: ProgressCallback) -> list[ScannedText]:
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
        places = [log.path(f"text/{name}-{number}") for number in range(len(paths))]
        return list(threads.map(scan, paths, places, [read] * len(paths)))


def check_texts(train: Split, held_out: Sequence[Split], settings: CorpusConfig, stages: StageRunner) -> None:
    """Refuse texts with faults that can be seen before any long work."""
    for split in held_out:
        _check_readable(split)
    for split in (*held_out, train):
        _check_alignment(split, settings, stages)
    _check_languages(held_out, train)


def _check_alignment(split: Split, settings: CorpusConfig, stages: StageRunner) -> None:
    """Refuse files of which line N of one does not translate line N of the other, and say where that begins."""
    if not settings.check_alignment and all(pair.source.lines == pair.target.lines for pair in split.pairs):
        return
    calls = [partial(_windows, chunk) for chunk in split.chunks]
    found = list(stages.run(f"check {split.name}", calls, [chunk.lines for chunk in split.chunks], unit="lines"))
    for pair, parts in split.by_pair(found):
        source, target = pair.files
        windows = [window for part in parts for window in part]
        shift = find_shift(windows)
        where = describe(shift, source, target) if shift else None
        if pair.source.lines != pair.target.lines:
            raise TandemError(
                f"{source} has {pair.source.lines} lines but {target} has {pair.target.lines}; line N of one must "
                f"translate line N of the other: {where or f'check after line {pair.lines}'}"
            )
        if where is None and are_unrelated(windows):
            where = (
                f"{source} and {target} do not look like translations of each other: line N of one has no more in "
                "common with line N of the other than with any; check that they belong together"
            )
        if where:
            raise TandemError(f"{where}; corpus.check_alignment=false takes them as they are")


def _windows(chunk: Chunk) -> list[AlignmentWindow]:
    return windows_of_chunk(chunk.raw_pairs(), chunk.lines, chunk.index * CHUNK_LINES + 1)


def _check_readable(split: Split) -> None:
    """Insist that every line of dev sets and test can be read: they are never cleaned, because BLEU is on all lines."""
    for texts in split.sides:
        for text in texts:
            for number, line in enumerate(all_lines(text), start=1):
                decoded(line, text.file, number)


def _check_languages(splits: Sequence[Split], train: Split) -> None:
    """Refuse splits whose languages are clearly swapped against those of the training text."""
    first, *others = (Split(train.name, [pair]) for pair in train.pairs)
    frequencies = WordFrequencies(first.pairs[0].files, _sample(first))
    for split in (*others, *splits):
        frequencies.check_not_swapped(split.name, split.pairs[0].files, _sample(split))


def _sample(split: Split) -> list[SentencePair]:
    """The first lines of every chunk, as many as together make a fair sample."""
    each = -(-_SAMPLE_LINES // len(split.chunks))
    raw = (pair for chunk in split.chunks for pair in chunk.raw_pairs(each))
    texts = ((text_of(source), text_of(target)) for source, target in raw)
    return [
        (source[:_SAMPLE_CHARACTERS], target[:_SAMPLE_CHARACTERS])
        for source, target in texts
        if source is not None and target is not None
    ]
