"""Turns parallel text into a prepared corpus: read, clean, shuffle, learn a vocabulary, encode, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import tandem
from tandem.config import CorpusConfig
from tandem.corpus.clean import Cleaner, cleaning_rules
from tandem.corpus.languages import Files, agree_on_languages, check_not_swapped
from tandem.corpus.order import random_order
from tandem.corpus.prepared import (
    FACTS_FILE,
    FORMAT,
    TEXT_FILES,
    TOKENIZER_FILE,
    Amount,
    CorpusFacts,
    InputFacts,
    PreparedCorpus,
    SideFacts,
    SplitFacts,
    VocabularyFacts,
    file_facts,
)
from tandem.corpus.shards import Pairs, write_pairs
from tandem.corpus.staging import staged_directory
from tandem.corpus.text import Pair, TextFile, check_file, read_parallel
from tandem.corpus.tokenizer import Tokenizer, train_tokenizer
from tandem.errors import TandemError

Progress = Callable[[str, int, int | None], None]
"""Called with a stage, how much of it is done, and how much there is (None: unknown); at its end done == total."""

# Sizes in common use: the smaller the corpus, the more often each piece must be seen to be learnt.
_SMALL_VOCABULARY, _LARGE_VOCABULARY = 8_000, 32_000
_LARGE_CORPUS = 1_000_000
# Enough sentences to keep all cores busy for a moment, few enough that their lists of ids stay small.
_ENCODED_AT_ONCE = 20_000


@dataclass(frozen=True)
class _Split:
    """The text of one split as it goes into the corpus, and where it came from."""

    files: tuple[TextFile, TextFile]
    pairs: list[Pair]
    dropped: dict[str, int]


def prepare(
    *,
    train: Files,
    dev: Files,
    test: Files | None = None,
    out: Path,
    settings: CorpusConfig,
    languages: tuple[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> PreparedCorpus:
    """Make a corpus directory from text files; it appears whole, and equal inputs and settings give equal bytes."""
    inputs = {"train": train, "dev": dev} | ({"test": test} if test else {})
    _check_files(inputs)
    languages = agree_on_languages(inputs, languages)
    with staged_directory(out, overwrite=overwrite, marker=FACTS_FILE) as work:
        splits = _read_splits(inputs, settings, progress)
        requested = settings.vocab_size or _default_vocabulary(len(splits["train"].pairs))
        tokenizer = _learn(splits["train"].pairs, requested, work / TOKENIZER_FILE, progress)
        split_facts = {name: _write_split(work / name, split, tokenizer, progress) for name, split in splits.items()}
        written = sorted(path for path in work.rglob("*") if path.is_file())
        facts = CorpusFacts(
            format=FORMAT,
            tandem=tandem.__version__,
            source_language=languages[0],
            target_language=languages[1],
            settings=settings,
            vocabulary=VocabularyFacts(requested=requested, actual=tokenizer.vocab_size),
            splits=split_facts,
            files={path.relative_to(work).as_posix(): file_facts(path) for path in written},
        )
        (work / FACTS_FILE).write_text(facts.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return PreparedCorpus.open(out)


def _check_files(inputs: Mapping[str, Files]) -> None:
    for split, (source, target) in inputs.items():
        check_file(source)
        check_file(target)
        if source.samefile(target):
            raise TandemError(
                f"--{split} {source} {target}: source and target are the same file; give one file for each language"
            )


def _read_splits(inputs: Mapping[str, Files], settings: CorpusConfig, progress: Progress) -> dict[str, _Split]:
    # Dev and test come first: they are small, and their faults should not wait for the training text.
    held_out = {name: _read_split(inputs[name], None, f"read {name}", progress) for name in inputs if name != "train"}
    train = _read_split(inputs["train"], Cleaner(cleaning_rules(settings)), "read and clean train", progress)
    if not train.pairs:
        dropped = ", ".join(f"{rule} {count}" for rule, count in train.dropped.items())
        raise TandemError(
            f"{inputs['train'][0]} and {inputs['train'][1]}: cleaning dropped every pair ({dropped}); "
            f"check the files, or raise max_words (now {settings.max_words})"
        )
    train = _Split(train.files, shuffle(train.pairs, settings.seed), train.dropped)
    for name, split in held_out.items():
        check_not_swapped(name, inputs[name], split.pairs, inputs["train"], train.pairs)
    return {"train": train, **held_out}


def _read_split(files: Files, cleaner: Cleaner | None, stage: str, progress: Progress) -> _Split:
    source, target = (TextFile(path) for path in files)
    pairs = _report_reading(read_parallel(source, target), source, stage, progress)
    if cleaner is None:
        return _Split((source, target), list(pairs), {})
    return _Split((source, target), list(cleaner.clean(pairs)), cleaner.dropped)


def _report_reading(pairs: Iterable[Pair], source: TextFile, stage: str, progress: Progress) -> Iterator[Pair]:
    """Pass pairs through; the source file stands for both, as they end together."""
    progress(stage, 0, None)
    for number, pair in enumerate(pairs):
        if number % 10_000 == 0:
            progress(stage, *source.progress())
        yield pair
    progress(stage, source.file_bytes, source.file_bytes)


def shuffle(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The pairs in an order that depends on the seed only."""
    return [pairs[index] for index in random_order(len(pairs), seed)]


def _default_vocabulary(pairs: int) -> int:
    return _SMALL_VOCABULARY if pairs < _LARGE_CORPUS else _LARGE_VOCABULARY


def _learn(pairs: Sequence[Pair], vocab_size: int, path: Path, progress: Progress) -> Tokenizer:
    progress("learn vocabulary", 0, None)
    # Source and target alternate, so that a sample of the shuffled text has both languages in equal parts.
    tokenizer = train_tokenizer(chain.from_iterable(pairs), vocab_size=vocab_size, model_path=path)
    progress("learn vocabulary", tokenizer.vocab_size, tokenizer.vocab_size)
    return tokenizer


def _write_split(directory: Path, split: _Split, tokenizer: Tokenizer, progress: Progress) -> SplitFacts:
    encoded = _encode(split.pairs, tokenizer, f"encode {directory.name}", progress)
    write_pairs(directory, encoded, vocab_size=tokenizer.vocab_size)
    sizes = [sum(len(pair[side].encode()) + 1 for pair in split.pairs) for side in (0, 1)]
    if directory.name != "train":  # BLEU is measured on the text as it came, every line of it
        for side, name in enumerate(TEXT_FILES):
            (directory / name).write_bytes("".join(f"{pair[side]}\n" for pair in split.pairs).encode())
    written = Pairs.open(directory)
    tokens = (int(written.source_lengths.sum()), int(written.target_lengths.sum()))
    source, target = (
        SideFacts(
            input=InputFacts(name=_printable(file.path), bytes=file.file_bytes, sha256=file.sha256),
            raw=Amount.of(file.lines, file.bytes),
            cleaned=Amount.of(len(split.pairs), size),
            tokens=count,
        )
        for file, size, count in zip(split.files, sizes, tokens, strict=True)
    )
    return SplitFacts(dropped=split.dropped, source=source, target=target)


def _encode(
    pairs: Sequence[Pair], tokenizer: Tokenizer, stage: str, progress: Progress
) -> Iterator[tuple[list[int], list[int]]]:
    remaining, done = iter(pairs), 0
    while batch := list(islice(remaining, _ENCODED_AT_ONCE)):
        progress(stage, done, len(pairs))
        sources, targets = zip(*batch, strict=True)
        yield from zip(tokenizer.encode(sources), tokenizer.encode(targets), strict=True)
        done += len(batch)
    progress(stage, done, len(pairs))


def _printable(path: Path) -> str:
    # A name in another encoding than UTF-8 would make corpus.json unwritable.
    return os.fsencode(path.name).decode("utf-8", "replace")
