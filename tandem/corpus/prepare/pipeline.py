"""Turns parallel text into a prepared corpus, stage by stage, over all cores, in bounded memory.

Every stage works through chunks of lines. What it found of a chunk depends on the chunk alone, and is noted when it
is whole; so the corpus is the same for any number of processes, and a prepare that was killed continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import tandem
from tandem.config import CorpusConfig
from tandem.corpus.prepare.cleaning_rules import CleaningRules
from tandem.corpus.prepare.dropped_examples import DroppedExample, JudgedFiles, explain
from tandem.corpus.prepare.duplicates import count_among
from tandem.corpus.prepare.encode import encode
from tandem.corpus.prepare.inputs import check_files, check_texts, check_unchanged, file_states, read_split
from tandem.corpus.prepare.languages import agree_on_languages
from tandem.corpus.prepare.other_vocabulary import OtherVocabulary, choose_vocabulary
from tandem.corpus.prepare.pair_verdicts import CleanedSplit, clean, drop_duplicates, kept_lines
from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.scan import Split, pairs_at
from tandem.corpus.prepare.stage_runner import StageRunner, available_cores, stage_runner
from tandem.corpus.prepare.staging import staged_directory
from tandem.corpus.prepare.word_counts import count_sampled_words
from tandem.corpus.prepared import (
    FORMAT,
    CorpusFacts,
    FileFacts,
    PreparedCorpus,
    SplitFacts,
    VocabularyFacts,
    file_facts,
)
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.corpus.shards import write_order
from tandem.corpus.text_files import CorpusTexts
from tandem.corpus.tokenizer import Tokenizer, default_vocab_size, train_tokenizer
from tandem.errors import TandemError
from tandem.layout import CORPUS_FILE, TOKENIZER_FILE
from tandem.storage import write_whole

# Raised when a stage would do something else with the same chunks, so that no half-finished work is mixed.
_METHOD = 2


def prepare(
    texts: CorpusTexts,
    out: str | Path,
    settings: CorpusConfig | None = None,
    *,
    vocabulary: str | Path | None = None,
    extend: int = 0,
    jobs: int | None = None,
    overwrite: bool = False,
    examples: int = 0,
    progress: ProgressCallback = no_progress,
) -> PreparedCorpus:
    """Make a corpus directory from text files; it appears whole, and equal inputs and settings give equal bytes.

    The vocabulary is learnt from the text, or that of another corpus or run, with at most `extend` more pieces at its
    end. Works with `jobs` processes, by default one a core. The corpus that is returned carries so many examples of
    what each cleaning rule dropped.
    """
    settings, out = settings or CorpusConfig(), Path(out)
    check_files(texts)
    base = choose_vocabulary(vocabulary, extend)
    languages = agree_on_languages(texts.splits, texts.languages)
    rules = CleaningRules(settings, languages)  # which may refuse a language
    before = file_states(texts)
    plan = {
        "method": _METHOD,
        "tandem": tandem.__version__,
        "settings": settings.model_dump(),
        "languages": languages,
        "origin": texts.origin,
        "origins": {str(path): came_from for path, came_from in texts.origins.items()},
        "inputs": {split: [list(map(str, files)) for files in pairs] for split, pairs in texts.splits.items()},
        "files": before,
        "vocabulary": None if base is None else base.plan(),
    }
    with staged_directory(out, overwrite=overwrite, marker=CORPUS_FILE) as staged:
        log = ResumeLog(staged, plan)
        # Dev sets and test come first: they are small, and their faults should not wait for the training text.
        order = sorted(texts.splits, key=lambda name: name == "train")
        *held_out, train = (read_split(name, texts.splits[name], texts.origins, log, progress) for name in order)
        # More processes than chunks would have nothing to do.
        with stage_runner(min(jobs or available_cores(), len(train.chunks)), log, progress) as stages:
            check_texts(train, held_out, settings, stages)
            splits, pieces = _build(train, held_out, rules, base, stages)
            dropped = _examples(train, rules, examples, stages) if examples else {}
            facts = CorpusFacts(
                format=FORMAT,
                tandem=tandem.__version__,
                source_language=languages[0],
                target_language=languages[1],
                settings=settings,
                vocabulary=pieces,
                splits=splits,
                origin=texts.origin,
                files=_checksums(stages),
            )
            write_whole(log.built / CORPUS_FILE, (facts.model_dump_json(indent=2) + "\n").encode())
        check_unchanged(texts, before)
        _check_built(log.built)
    return replace(PreparedCorpus.open(out), dropped_examples=dropped)


def _build(
    train: Split, held_out: Sequence[Split], rules: CleaningRules, base: OtherVocabulary | None, stages: StageRunner
) -> tuple[dict[str, SplitFacts], VocabularyFacts]:
    """Make all files of the corpus but corpus.json; each stage begins where an earlier attempt stopped."""
    chunks = clean(train, rules, stages)
    cleaned = drop_duplicates(train, chunks, rules, stages)
    _check_pairs_left(train, cleaned)
    requested = rules.settings.vocab_size or default_vocab_size(sum(cleaned.kept))
    if base is not None:
        requested = base.requested
    tokenizer = _make_vocabulary(train, cleaned, requested, base, stages)
    raw_words = [sum(chunk.words[side] for chunk in chunks) for side in (0, 1)]
    facts = {"train": encode(train, stages, dropped=cleaned.dropped, raw_words=raw_words)}
    digests = [stages.chunk_file("digests", chunk.number) for chunk in train.chunks]
    for split in held_out:
        pairs = (pair for chunk in split.chunks for pair in kept_lines(chunk, None))
        facts[split.name] = encode(split, stages, in_train=count_among(pairs, digests))
    calls = [partial(write_order, stages.log.built / split.name) for split in (*held_out, train)]
    list(stages.run("sort by length", calls))
    kept = 0 if base is None else base.tokenizer.vocab_size
    return facts, VocabularyFacts(requested=requested, actual=tokenizer.vocab_size, kept=kept)


def _check_pairs_left(train: Split, cleaned: CleanedSplit) -> None:
    if not sum(cleaned.kept):
        dropped_by = ", ".join(f"{rule} {count}" for rule, count in cleaned.dropped.items() if count)
        source, target = train.pairs[0].files
        raise TandemError(
            f"{source} and {target}: cleaning dropped every pair ({dropped_by}); "
            "check the files, or change the corpus settings"
        )


def _make_vocabulary(
    train: Split, cleaned: CleanedSplit, vocab_size: int, base: OtherVocabulary | None, stages: StageRunner
) -> Tokenizer:
    """Learn a vocabulary from the text that was kept, or take over another one."""
    path = stages.log.built / TOKENIZER_FILE
    if path.is_file():
        return Tokenizer.load(path)

    def words() -> Mapping[str, int]:
        counted = count_sampled_words(zip(train.chunks, cleaned.kept, strict=True), stages)
        stages.progress("learn vocabulary", 0, None)
        return counted

    if base is not None:
        return base.write(path, words)
    tokenizer = train_tokenizer(words(), vocab_size=vocab_size, model_path=path)
    stages.progress("learn vocabulary", tokenizer.vocab_size, tokenizer.vocab_size)
    return tokenizer


def _examples(train: Split, rules: CleaningRules, count: int, stages: StageRunner) -> dict[str, list[DroppedExample]]:
    verdicts = [np.load(stages.chunk_file("verdicts", chunk.number)) for chunk in train.chunks]
    judged = [
        JudgedFiles(pair.files, np.concatenate(found), partial(pairs_at, pair))
        for pair, found in train.by_pair(verdicts)
    ]
    return explain(rules, judged, count)


def _checksums(stages: StageRunner) -> dict[str, FileFacts]:
    """Size and checksum of every file built, by its path inside the corpus."""
    built = stages.log.built
    # What a killed writer left has a hidden name.
    paths = sorted(path for path in built.rglob("[!.]*") if path.is_file() and path.name != CORPUS_FILE)
    found = stages.run("take checksums", [partial(file_facts, path) for path in paths])
    return {path.relative_to(built).as_posix(): facts for path, facts in zip(paths, found, strict=True)}


def _check_built(directory: Path) -> None:
    """Open what was built before it is put in its place: whatever a crash of the machine may have done to it."""
    for leftover in directory.rglob(".*.writing"):
        leftover.unlink()
    corpus = PreparedCorpus.open(directory)
    for split in corpus.facts.splits:
        corpus.pairs(split)
