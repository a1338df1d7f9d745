"""Turns parallel text into a prepared corpus, stage by stage, over all cores, in bounded memory.

Every stage works through chunks of lines. What it found of a chunk depends on the chunk alone, and is noted when it
is whole; so the corpus is the same for any number of processes, and a prepare that was killed continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import tandem
from tandem.config import CorpusConfig, Section
from tandem.corpus.arrays import write_array
from tandem.corpus.clean import KEPT, Rules, check_encoding
from tandem.corpus.duplicates import count_among, find_duplicates, portions
from tandem.corpus.encode import EncodedChunk, EncodingTask, encode_chunk
from tandem.corpus.explain import Example, Part, explain
from tandem.corpus.inputs import (
    Inputs,
    Split,
    check_alignment,
    check_files,
    check_held_out,
    check_languages,
    check_unchanged,
    read_split,
    states,
)
from tandem.corpus.languages import agree_on_languages
from tandem.corpus.prepared import (
    FACTS_FILE,
    FORMAT,
    TEXT_FILES,
    TOKENIZER_FILE,
    CorpusFacts,
    PreparedCorpus,
    VocabularyFacts,
    file_facts,
)
from tandem.corpus.progress import Progress, unwatched
from tandem.corpus.record import Outcome, split_facts
from tandem.corpus.scan import Chunk, copy_text, pairs_at
from tandem.corpus.shards import write_order
from tandem.corpus.staging import staged_directory
from tandem.corpus.text import Files
from tandem.corpus.tokenizer import Tokenizer, train_tokenizer
from tandem.corpus.verdicts import Cleaned, CleaningTask, clean_chunk, kept_lines, with_duplicates
from tandem.corpus.words import count_chunk, counting_tasks, worth_learning_from
from tandem.corpus.work import Work
from tandem.corpus.workers import Workers, available_cores, working
from tandem.errors import TandemError
from tandem.files import write_whole

Task = TypeVar("Task")
Found = TypeVar("Found", bound=Section)
Explained = Callable[[Mapping[str, Sequence[Example]]], None]

# Sizes in common use: the smaller the corpus, the more often each piece must be seen to be learnt.
_SMALL_VOCABULARY, _LARGE_VOCABULARY = 8_000, 32_000
_LARGE_CORPUS = 1_000_000
# Raised when a stage would do something else with the same chunks, so that no half-finished work is mixed.
_METHOD = 1


def prepare(
    *,
    train: Sequence[Files],
    dev: Files,
    test: Files | None = None,
    out: Path,
    settings: CorpusConfig,
    languages: tuple[str, str] | None = None,
    origin: str | None = None,
    origins: Mapping[Path, str] | None = None,
    overwrite: bool = False,
    jobs: int | None = None,
    examples: int = 0,
    explained: Explained = lambda examples: None,
    progress: Progress = unwatched,
) -> PreparedCorpus:
    """Make a corpus directory from text files; it appears whole, and equal inputs and settings give equal bytes.

    `origin` is the name of the corpus and `origins` where its files came from, for the record. `explained` hears that
    many examples of what each rule dropped.
    """
    inputs: Inputs = {"train": train, "dev": [dev]} | ({"test": [test]} if test else {})
    check_files(inputs)
    languages = agree_on_languages(inputs, languages)
    rules = Rules(settings, languages)  # which may refuse a language
    before = states(inputs)
    plan = {
        "method": _METHOD,
        "tandem": tandem.__version__,
        "settings": settings.model_dump(),
        "languages": languages,
        "origin": origin,
        "origins": {str(path): came_from for path, came_from in (origins or {}).items()},
        "inputs": {split: len(pairs) for split, pairs in inputs.items()},
        "files": before,
    }
    with staged_directory(out, overwrite=overwrite, marker=FACTS_FILE) as staged:
        work = Work.begin(staged, plan)
        # Dev and test come first: they are small, and their faults should not wait for the training text.
        order = sorted(inputs, key=lambda name: name == "train")
        splits = {name: read_split(name, inputs[name], origins or {}, work, progress) for name in order}
        # More processes than chunks would have nothing to do.
        with working(min(jobs or available_cores(), len(splits["train"].chunks))) as workers:
            preparation = _Preparation(settings, languages, rules, work, workers, progress)
            preparation.run(splits, origin, examples, explained)
        check_unchanged(inputs, before)
        _check_built(work.built)
    return PreparedCorpus.open(out)


class _Judged(Section):
    """The outcome of cleaning."""

    kept: list[int]
    """Pairs kept of each chunk."""
    dropped: dict[str, int]
    """Pairs dropped by each rule."""


@dataclass(frozen=True)
class _Preparation:
    """The stages, each of which begins where an earlier attempt stopped."""

    settings: CorpusConfig
    languages: tuple[str, str]
    rules: Rules
    work: Work
    workers: Workers
    progress: Progress

    def run(self, splits: Mapping[str, Split], origin: str | None, examples: int, explained: Explained) -> None:
        """All stages in turn; what is built is whole at the end."""
        train, held_out = splits["train"], [split for name, split in splits.items() if name != "train"]
        self._check(train, held_out)
        cleaned = self._clean(train)
        judged = self._judge(train, cleaned)
        requested = self.settings.vocab_size or _default_vocabulary(sum(judged.kept))
        tokenizer = self._learn(train, judged, requested)
        raw_words = (sum(chunk.source_words for chunk in cleaned), sum(chunk.target_words for chunk in cleaned))
        outcomes = [Outcome(train, self._encode(train), judged.dropped, raw_words)]
        outcomes += [
            Outcome(split, self._encode(split), {}, None, in_train=self._count_in_train(split, train))
            for split in held_out
        ]
        for number, split in enumerate(splits.values()):
            self.progress("sort by length", number, len(splits))
            write_order(self.work.built / split.name)
        self.progress("sort by length", len(splits), len(splits))
        if examples:
            explained(self._explain(train, examples))
        self._record(outcomes, VocabularyFacts(requested=requested, actual=tokenizer.vocab_size), origin)

    def _check(self, train: Split, held_out: Sequence[Split]) -> None:
        """Say the faults that can be seen at once before any long work."""
        for split in held_out:
            check_held_out(split)
        for split in (*held_out, train):
            check_alignment(split, self.settings, self.workers, self.progress)
        check_languages(held_out, train)

    def _clean(self, train: Split) -> list[Cleaned]:
        """Judge every training pair by the rules that need no other pair."""
        cleaned = self._chunk_by_chunk(
            "clean",
            train,
            clean_chunk,
            lambda chunk: CleaningTask(
                chunk,
                self.settings,
                self.languages,
                self._place("judged", chunk.number),
                self._place("digests", chunk.number),
            ),
            Cleaned,
        )
        places = [number for number, pair in enumerate(train.pairs) for _ in range(pair.chunks)]
        for number, (pair, files) in enumerate(zip(train.pairs, train.files, strict=True)):
            for side, path in enumerate(files):
                undecoded = (
                    chunk.undecoded[side] for place, chunk in zip(places, cleaned, strict=True) if place == number
                )
                check_encoding(path, sum(undecoded), pair.lines)
        return cleaned

    def _judge(self, train: Split, cleaned: Sequence[Cleaned]) -> _Judged:
        """Drop pairs that came before, and add up what was dropped."""
        found = self.work.found("judged", _Judged)
        if found is None:
            rules = self.rules
            duplicates = self._duplicates(train, sum(chunk.kept for chunk in cleaned)) if rules.duplicate else []
            counts, kept = np.zeros(len(rules.names) + 1, dtype=np.int64), []
            for chunk in train.chunks:
                verdicts = np.load(self._place("judged", chunk.number))
                if rules.duplicate:
                    verdicts = with_duplicates(verdicts, chunk.number, duplicates, rules.duplicate)
                write_array(self._place("verdicts", chunk.number), verdicts)
                counts += np.bincount(verdicts, minlength=len(counts))
                kept.append(int((verdicts == KEPT).sum()))
            dropped = dict(zip(rules.names, counts[1:].tolist(), strict=True))
            found = _Judged(kept=kept, dropped=dropped)
            self.work.finish("judged", found)
        if not sum(found.kept):
            dropped_by = ", ".join(f"{rule} {count}" for rule, count in found.dropped.items() if count)
            source, target = train.files[0]
            raise TandemError(
                f"{source} and {target}: cleaning dropped every pair ({dropped_by}); "
                "check the files, or change the corpus settings"
            )
        return found

    def _duplicates(self, train: Split, pairs: int) -> list[NDArray[np.uint64]]:
        stage = "find duplicates"
        digests = [self._place("digests", chunk.number) for chunk in train.chunks]
        tasks = portions(digests, pairs, lambda number: self._place("duplicates", number))
        self.progress(stage, 0, len(tasks))
        places = []
        for place in self.workers.map(find_duplicates, tasks):
            places.append(place)
            self.progress(stage, len(places), len(tasks))
        return [np.load(place, mmap_mode="r") for place in places]

    def _learn(self, train: Split, judged: _Judged, vocab_size: int) -> Tokenizer:
        path = self.work.built / TOKENIZER_FILE
        if path.is_file():
            return Tokenizer.load(path)
        verdicts = [self._place("verdicts", chunk.number) for chunk in train.chunks]
        tasks = counting_tasks(zip(train.chunks, verdicts, judged.kept, strict=True))
        self.progress("count words", 0, len(tasks))
        words: Counter[str] = Counter()
        for done, counted in enumerate(self.workers.map(count_chunk, tasks), start=1):
            words.update(counted)
            self.progress("count words", done, len(tasks))
        self.progress("learn vocabulary", 0, None)
        frequent = worth_learning_from(words, tasks[0].stride)
        tokenizer = train_tokenizer(frequent, vocab_size=vocab_size, model_path=path)
        self.progress("learn vocabulary", tokenizer.vocab_size, tokenizer.vocab_size)
        return tokenizer

    def _encode(self, split: Split) -> list[EncodedChunk]:
        directory = self.work.built / split.name
        directory.mkdir(exist_ok=True)
        is_train = split.name == "train"
        if not is_train:  # BLEU is measured on the text as it came, every line of it
            for name, texts in zip(TEXT_FILES, zip(*split.texts, strict=True), strict=True):
                copy_text(texts, directory / name)
        return self._chunk_by_chunk(
            "encode",
            split,
            encode_chunk,
            lambda chunk: EncodingTask(
                chunk,
                self._place("verdicts", chunk.number) if is_train else None,
                self.work.built / TOKENIZER_FILE,
                directory,
            ),
            EncodedChunk,
        )

    def _count_in_train(self, split: Split, train: Split) -> int:
        pairs = (pair for chunk in split.chunks for pair in kept_lines(chunk, None))
        return count_among(pairs, [self._place("digests", chunk.number) for chunk in train.chunks])

    def _explain(self, train: Split, count: int) -> dict[str, list[Example]]:
        parts, numbers = [], iter(range(len(train.chunks)))
        for pair, files in zip(train.pairs, train.files, strict=True):
            verdicts = [np.load(self._place("verdicts", next(numbers))) for _ in range(pair.chunks)]
            parts.append(Part(*files, np.concatenate(verdicts), partial(pairs_at, pair)))
        return explain(self.rules.names, parts, count)

    def _record(self, outcomes: Sequence[Outcome], vocabulary: VocabularyFacts, origin: str | None) -> None:
        """Write corpus.json, which has the checksum of every other file."""
        built = self.work.built
        # What a killed writer left has a hidden name.
        paths = sorted(path for path in built.rglob("[!.]*") if path.is_file() and path.name != FACTS_FILE)
        files = {}
        self.progress("take checksums", 0, len(paths))
        for path, file in zip(paths, self.workers.map(file_facts, paths), strict=True):
            files[path.relative_to(built).as_posix()] = file
            self.progress("take checksums", len(files), len(paths))
        facts = CorpusFacts(
            format=FORMAT,
            tandem=tandem.__version__,
            source_language=self.languages[0],
            target_language=self.languages[1],
            settings=self.settings,
            vocabulary=vocabulary,
            splits={outcome.split.name: split_facts(outcome, built / outcome.split.name) for outcome in outcomes},
            origin=origin,
            files=files,
        )
        write_whole(built / FACTS_FILE, (facts.model_dump_json(indent=2) + "\n").encode())

    def _chunk_by_chunk(
        self,
        what: str,
        split: Split,
        function: Callable[[Task], Found],
        task: Callable[[Chunk], Task],
        kind: type[Found],
    ) -> list[Found]:
        """Do a piece of work for every chunk of a split for which it is not done yet; what was found of all."""
        stage, chunks = f"{what} {split.name}", split.chunks
        notes = [f"{what}-{split.name}/{chunk.number:05}" for chunk in chunks]
        found = [self.work.found(note, kind) for note in notes]
        missing = [chunk for chunk, known in zip(chunks, found, strict=True) if known is None]
        total = sum(chunk.lines for chunk in chunks)
        done = total - sum(chunk.lines for chunk in missing)
        self.progress(stage, done, total, "lines")
        for chunk, result in zip(missing, self.workers.map(function, map(task, missing)), strict=True):
            self.work.finish(notes[chunk.number], result)
            found[chunk.number] = result
            self.progress(stage, done := done + chunk.lines, total, "lines")
        return [result for result in found if result is not None]

    def _place(self, what: str, number: int) -> Path:
        return self.work.path(f"{what}/{number:05}.npy")


def _check_built(directory: Path) -> None:
    """Open what was built before it is put in its place: whatever a crash of the machine may have done to it."""
    for leftover in directory.rglob(".*.writing"):
        leftover.unlink()
    corpus = PreparedCorpus.open(directory)
    for split in corpus.facts.splits:
        corpus.pairs(split)


def _default_vocabulary(pairs: int) -> int:
    return _SMALL_VOCABULARY if pairs < _LARGE_CORPUS else _LARGE_VOCABULARY
