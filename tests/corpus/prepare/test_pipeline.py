"""`prepare` from files to a corpus: what it makes, what it records, and that it is repeatable."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus, summary_lines
from tandem.corpus.text_files import CorpusTexts

Files = tuple[Path, Path]
Pairs = list[tuple[str, str]]
WritePair = Callable[[str, Pairs], Files]

SETTINGS = CorpusConfig(vocab_size=400)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file under a directory, hidden ones too."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def decoded_pairs(corpus: PreparedCorpus) -> list[tuple[str, ...]]:
    """The training text as it can be read back from the shards."""
    pairs = corpus.pairs("train")
    sides = [(pairs.source(index).tolist(), pairs.target(index).tolist()) for index in range(len(pairs))]
    return [tuple(corpus.tokenizer.decode(pair)) for pair in sides]


def test_training_text_keeps_its_order_and_nothing_is_lost(train: Files, dev: Files, tmp_path: Path) -> None:
    corpus = prepare(CorpusTexts([train], dev), tmp_path / "corpus", SETTINGS)
    assert (corpus.facts.source_language, corpus.facts.target_language) == ("en", "de")
    assert decoded_pairs(corpus) == list(zip(*(path.read_text().splitlines() for path in train), strict=True))
    assert corpus.tokenizer.vocab_size == corpus.facts.vocabulary.actual == 400


def test_dev_and_test_keep_every_line_in_order(train: Files, tmp_path: Path, write_pair: WritePair) -> None:
    long = "word " * 200
    odd = [("", "eins"), ("a\u2028b\x85c", "\x0c"), ("two  spaces ", "\u2581"), (long, ""), ("", ""), ("z", "\ufeffü")]
    dev, test = write_pair("dev", odd), write_pair("test", odd[1:])
    corpus = prepare(CorpusTexts([train], dev, test), tmp_path / "corpus", SETTINGS)
    assert corpus.text("dev") == ([source for source, _ in odd], [target for _, target in odd])
    assert corpus.text("test") == ([source for source, _ in odd[1:]], [target for _, target in odd[1:]])
    pairs = corpus.pairs("dev")
    assert len(pairs) == 6
    assert len(pairs.source(0)) == len(pairs.target(3)) == 0
    assert pairs.source(1).tolist() == corpus.tokenizer.encode(["a\u2028b\x85c"])[0]
    assert corpus.facts.splits["dev"].dropped == {}


def test_facts_of_a_corpus_counted_by_hand(tmp_path: Path, write_pair: WritePair) -> None:
    pairs = [("a b", "ä"), ("", "x"), ("c", "d e f"), ("g", " "), ("h i", "ö ü"), ("1 2 3", "y"), ("h i", "ö ü")]
    more = [("k", "k"), ("a b", "ä"), ("l", "m" * 10), ("n\0", "o"), ("p  q", "r")]
    train, dev = write_pair("train", pairs), write_pair("dev", [("a", "ä"), ("", "")])
    settings = CorpusConfig(vocab_size=500, max_words=2)
    corpus = prepare(CorpusTexts([train, write_pair("more", more)], dev), tmp_path / "corpus", settings)
    facts = corpus.facts
    split = facts.splits["train"]
    assert split.dropped == {
        "long_line": 0,
        "broken_utf8": 0,
        "control_characters": 1,
        "empty_side": 2,
        "too_many_words": 2,
        "length_ratio": 1,
        "copy": 1,
        "duplicate": 2,
    }
    # en: 4 + 1 + 2 + 2 + 4 + 6 + 4, and 2 + 4 + 2 + 3 + 5; de: 3 (ä is two bytes) + 2 + 6 + 2 + 6 + 2 + 6, and ...
    assert split.source.raw.model_dump() == {"lines": 12, "bytes": 39, "mb": 0.000039, "words": 18}
    assert split.target.raw.model_dump() == {"lines": 12, "bytes": 47, "mb": 0.000047, "words": 15}
    # "a b", "h i", "p  q"
    assert split.source.cleaned.model_dump() == {"lines": 3, "bytes": 13, "mb": 0.000013, "words": 6}
    assert split.target.cleaned.model_dump() == {"lines": 3, "bytes": 11, "mb": 0.000011, "words": 4}
    assert [file.name for file in split.target.inputs] == ["train.de", "more.de"]
    assert split.source.inputs[0].model_dump() == {
        "name": "train.en",
        "bytes": 23,
        "sha256": subprocess.check_output(["sha256sum", train[0]], text=True).split()[0],
        "lines": 7,
    }
    dev_side = facts.splits["dev"].target
    assert (dev_side.raw.lines, dev_side.raw.bytes, dev_side.cleaned.lines, dev_side.cleaned.bytes) == (2, 4, 2, 4)
    for name, stored in facts.splits.items():
        shards, count = corpus.pairs(name), stored.source.encoded.lines
        assert stored.source.encoded.tokens == sum(len(shards.source(index)) for index in range(count))
        assert stored.target.encoded.tokens == sum(len(shards.target(index)) for index in range(count))
        ids = tmp_path / "corpus" / name / "00000.target.npy"
        assert stored.target.encoded.bytes == sum(path.stat().st_size for path in ids.parent.glob("*.target.npy"))
    assert facts.settings == settings
    assert facts.origin is None
    assert facts.vocabulary.requested == 500
    assert facts.vocabulary.actual == corpus.tokenizer.vocab_size < 300
    assert set(facts.files) == set(contents(tmp_path / "corpus")) - {"corpus.json"}
    assert PreparedCorpus.open(tmp_path / "corpus").facts == facts


def test_windows_files_count_as_they_are_and_come_out_clean(train: Files, dev: Files, tmp_path: Path) -> None:
    plain = prepare(CorpusTexts([train], dev), tmp_path / "plain", SETTINGS)
    for path in (*train, *dev):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    windows = prepare(CorpusTexts([train], dev), tmp_path / "windows", SETTINGS)
    assert windows.digest == plain.digest
    side = windows.facts.splits["train"].source
    assert side.raw.bytes == train[0].stat().st_size
    assert side.cleaned == plain.facts.splits["train"].source.cleaned


def test_packed_files_give_the_same_corpus(train: Files, dev: Files, tmp_path: Path) -> None:
    plain = prepare(CorpusTexts([train], dev), tmp_path / "plain", SETTINGS)
    files = (Path(f"{train[0]}.gz"), Path(f"{train[1]}.gz"))
    for path, file in zip(train, files, strict=True):
        file.write_bytes(gzip.compress(path.read_bytes()))
    packed = prepare(CorpusTexts([files], dev), tmp_path / "packed", SETTINGS)
    assert packed.digest == plain.digest
    assert packed.facts.splits["train"].source.raw == plain.facts.splits["train"].source.raw
    before, after = contents(tmp_path / "plain"), contents(tmp_path / "packed")
    assert {name for name in before if before[name] != after[name]} == {"corpus.json"}


def test_two_runs_give_the_same_bytes_wherever_they_are(train: Files, dev: Files, tmp_path: Path) -> None:
    prepare(CorpusTexts([train], dev), tmp_path / "one", SETTINGS)
    elsewhere = tmp_path / "else" / "where"
    elsewhere.mkdir(parents=True)
    moved = [Path(shutil.copy(path, elsewhere)) for path in (*train, *dev)]
    prepare(CorpusTexts([(moved[0], moved[1])], (moved[2], moved[3])), elsewhere / "two", SETTINGS)
    assert contents(tmp_path / "one") == contents(elsewhere / "two")


def test_the_digest_follows_the_contents(train: Files, dev: Files, tmp_path: Path) -> None:
    digests = {prepare(CorpusTexts([train], dev), tmp_path / "a", SETTINGS).digest}
    fewer_words = CorpusConfig(vocab_size=400, max_words=4)
    digests.add(prepare(CorpusTexts([train], dev), tmp_path / "b", fewer_words).digest)
    named = prepare(CorpusTexts([train], dev, languages=("eng", "deu")), tmp_path / "c", SETTINGS)
    digests.add(named.digest)
    dev[1].write_text(dev[1].read_text().replace("Hund", "Hund!", 1))
    digests.add(prepare(CorpusTexts([train], dev), tmp_path / "d", SETTINGS).digest)
    assert len(digests) == 4


def test_the_default_vocabulary_is_recorded(train: Files, dev: Files, tmp_path: Path) -> None:
    facts = prepare(CorpusTexts([train], dev), tmp_path / "corpus", CorpusConfig()).facts
    assert facts.settings.vocab_size is None
    assert facts.vocabulary.requested == 8000
    assert 300 < facts.vocabulary.actual < 1000


def test_progress_starts_at_nothing_and_ends_complete(train: Files, dev: Files, tmp_path: Path) -> None:
    calls: dict[str, list[tuple[int, int | None]]] = {}

    def note(stage: str, done: int, total: int | None, unit: str = "") -> None:
        calls.setdefault(stage, []).append((done, total))

    prepare(CorpusTexts([train], dev), tmp_path / "corpus", SETTINGS, progress=note)
    assert list(calls) == [
        "read dev",
        "read train",
        "check dev",
        "check train",
        "clean train",
        "find duplicates",
        "count words",
        "learn vocabulary",
        "encode train",
        "encode dev",
        "sort by length",
        "take checksums",
    ]
    for steps in calls.values():
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] != 0
        assert steps == sorted(steps, key=lambda step: step[0])


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(many: Files, train: Files, dev: Files, tmp_path: Path) -> None:
    for jobs in (1, 3):
        corpus = prepare(CorpusTexts([many, train, many], dev), tmp_path / str(jobs), SETTINGS, jobs=jobs)
        assert corpus.facts.splits["train"].dropped["duplicate"] == 70_000
    assert contents(tmp_path / "1") == contents(tmp_path / "3")
    assert len(list((tmp_path / "1" / "train").glob("*.source.npy"))) == 5


@pytest.mark.slow
def test_examples_of_what_was_dropped(train: Files, dev: Files, tmp_path: Path) -> None:
    corpus = prepare(CorpusTexts([train, train], dev), tmp_path / "corpus", SETTINGS, examples=2)
    found = {rule: len(examples) for rule, examples in corpus.dropped_examples.items() if examples}
    assert found == {"duplicate": 2}


@pytest.mark.slow
def test_odd_lines_are_dropped_and_counted_and_nothing_shifts(train: Files, dev: Files, tmp_path: Path) -> None:
    odd = [b"x" * 100_000_000, b"nul \0", b"old mac\r", b"latin \xfc", b"\xef\xbf\xbd", b"   ", b"word " * 81, b"z"]
    given = list(zip(*(path.read_text().splitlines() for path in train), strict=True))
    lines = [path.read_bytes().splitlines() for path in train]
    for number, line in enumerate(odd):
        # On either side in turn, with an innocent line on the other.
        place, side = 7 * number + 3, number % 2
        lines[side].insert(place, line)
        lines[1 - side].insert(place, b"an innocent line")
    for path, side_lines in zip(train, lines, strict=True):
        path.write_bytes(b"\r\n".join(side_lines))
    corpus = prepare(CorpusTexts([train], dev), tmp_path / "corpus", SETTINGS)
    facts = corpus.facts.splits["train"]
    assert facts.dropped == {
        "long_line": 1,
        "broken_utf8": 2,
        "control_characters": 2,
        "empty_side": 1,
        "too_many_words": 1,
        "length_ratio": 1,
        "copy": 0,
        "duplicate": 0,
    }
    assert decoded_pairs(corpus) == given


def test_another_corpus_in_the_same_place_has_its_own_vocabulary(train: Files, dev: Files, tmp_path: Path) -> None:
    """In one process, which remembers words of the first."""
    for size in (420, 380):
        settings = CorpusConfig(vocab_size=size)
        again = prepare(CorpusTexts([train], dev), tmp_path / "corpus", settings, overwrite=True)
    assert again.digest == prepare(CorpusTexts([train], dev), tmp_path / "alone", settings).digest


@pytest.mark.parametrize("drop_duplicates", [True, False])
def test_dev_text_in_the_training_text_is_told(
    train: Files, dev: Files, sentences: Pairs, write_pair: WritePair, tmp_path: Path, drop_duplicates: bool
) -> None:
    test = write_pair("test", [*sentences[:2], ("a fox", "ein Fuchs")])
    settings = CorpusConfig(vocab_size=400, drop_duplicates=drop_duplicates)
    corpus = prepare(CorpusTexts([train], dev, test), tmp_path / "corpus", settings)
    assert [split.in_train for split in corpus.facts.splits.values()] == [0, 20, 2]
    assert "test: 2 of 3 pairs also stand in train" in list(summary_lines(corpus))


def test_named_pipes(train: Files, dev: Files, tmp_path: Path) -> None:
    pipes = (tmp_path / "pipe.en", tmp_path / "pipe.de")
    with ThreadPoolExecutor(2) as writers:
        for path, pipe in zip(train, pipes, strict=True):
            os.mkfifo(pipe)
            writers.submit(pipe.write_bytes, path.read_bytes())
        piped = prepare(CorpusTexts([pipes], dev), tmp_path / "piped", SETTINGS)
    assert piped.digest == prepare(CorpusTexts([train], dev), tmp_path / "plain", SETTINGS).digest
