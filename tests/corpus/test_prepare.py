"""`prepare` from files to a corpus: what it makes, what it records, and that it is repeatable."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.config import CorpusConfig
from tandem.corpus import prepare as module
from tandem.corpus.prepare import prepare, shuffle
from tandem.corpus.prepared import PreparedCorpus

Files = tuple[Path, Path]
Pairs = list[tuple[str, str]]
WritePair = Callable[[str, Pairs], Files]

SETTINGS = CorpusConfig(vocab_size=400)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file under a directory, hidden ones too."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_training_text_is_shuffled_and_nothing_is_lost(train: Files, dev: Files, tmp_path: Path) -> None:
    corpus = prepare(train=train, dev=dev, out=tmp_path / "corpus", settings=SETTINGS)
    assert (corpus.facts.source_language, corpus.facts.target_language) == ("en", "de")
    pairs = corpus.pairs("train")
    decoded = [
        tuple(corpus.tokenizer.decode([pairs.source(index).tolist(), pairs.target(index).tolist()]))
        for index in range(len(pairs))
    ]
    given = list(zip(*(path.read_text().splitlines() for path in train), strict=True))
    assert decoded != given
    assert sorted(decoded) == sorted(given)
    assert corpus.tokenizer.vocab_size == corpus.facts.vocabulary.actual == 400


def test_dev_and_test_keep_every_line_in_order(train: Files, tmp_path: Path, write_pair: WritePair) -> None:
    long = "word " * 200
    odd = [("", "eins"), ("a\u2028b\x85c", "\x0c"), ("two  spaces ", "\u2581"), (long, ""), ("", ""), ("z", "\ufeffü")]
    dev, test = write_pair("dev", odd), write_pair("test", odd[1:])
    corpus = prepare(train=train, dev=dev, test=test, out=tmp_path / "corpus", settings=SETTINGS)
    assert corpus.text("dev") == ([source for source, _ in odd], [target for _, target in odd])
    assert corpus.text("test") == ([source for source, _ in odd[1:]], [target for _, target in odd[1:]])
    pairs = corpus.pairs("dev")
    assert len(pairs) == 6
    assert pairs.source_lengths[0] == pairs.target_lengths[3] == 0
    assert pairs.source(1).tolist() == corpus.tokenizer.encode(["a\u2028b\x85c"])[0]
    assert corpus.facts.splits["dev"].dropped == {}


def test_facts_of_a_corpus_counted_by_hand(tmp_path: Path, write_pair: WritePair) -> None:
    pairs = [("a b", "ä"), ("", "x"), ("c", "d e f"), ("g", " "), ("h i", "ö ü"), ("1 2 3", "y")]
    train, dev = write_pair("train", pairs), write_pair("dev", [("a", "ä"), ("", "")])
    settings = CorpusConfig(vocab_size=500, max_words=2, seed=7)
    corpus = prepare(train=train, dev=dev, out=tmp_path / "corpus", settings=settings)
    facts = corpus.facts
    split = facts.splits["train"]
    assert split.dropped == {"empty_side": 2, "too_many_words": 2}
    # en: 4 + 1 + 2 + 2 + 4 + 6; de: 3 (ä is two bytes) + 2 + 6 + 2 + 6 + 2
    assert split.source.raw.model_dump() == {"lines": 6, "bytes": 19, "mb": 0.000019}
    assert split.target.raw.model_dump() == {"lines": 6, "bytes": 21, "mb": 0.000021}
    assert split.source.cleaned.model_dump() == {"lines": 2, "bytes": 8, "mb": 0.000008}
    assert split.target.cleaned.model_dump() == {"lines": 2, "bytes": 9, "mb": 0.000009}
    assert split.source.input.model_dump() == {
        "name": "train.en",
        "bytes": 19,
        "sha256": subprocess.check_output(["sha256sum", train[0]], text=True).split()[0],
    }
    dev_side = facts.splits["dev"].target
    assert (dev_side.raw.lines, dev_side.raw.bytes, dev_side.cleaned.lines, dev_side.cleaned.bytes) == (2, 4, 2, 4)
    for name, stored in facts.splits.items():
        assert stored.source.tokens == corpus.pairs(name).source_lengths.sum()
        assert stored.target.tokens == sum(len(corpus.pairs(name).target(index)) for index in range(2))
    assert facts.settings == settings
    assert facts.vocabulary.requested == 500
    assert facts.vocabulary.actual == corpus.tokenizer.vocab_size < 300
    assert set(facts.files) == set(contents(tmp_path / "corpus")) - {"corpus.json"}
    assert PreparedCorpus.open(tmp_path / "corpus").facts == facts


def test_windows_files_count_as_they_are_and_come_out_clean(train: Files, dev: Files, tmp_path: Path) -> None:
    plain = prepare(train=train, dev=dev, out=tmp_path / "plain", settings=SETTINGS)
    for path in (*train, *dev):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    windows = prepare(train=train, dev=dev, out=tmp_path / "windows", settings=SETTINGS)
    assert windows.digest == plain.digest
    side = windows.facts.splits["train"].source
    assert side.raw.bytes == train[0].stat().st_size
    assert side.cleaned == plain.facts.splits["train"].source.cleaned


def test_packed_files_give_the_same_corpus(train: Files, dev: Files, tmp_path: Path) -> None:
    plain = prepare(train=train, dev=dev, out=tmp_path / "plain", settings=SETTINGS)
    files = (Path(f"{train[0]}.gz"), Path(f"{train[1]}.gz"))
    for path, file in zip(train, files, strict=True):
        file.write_bytes(gzip.compress(path.read_bytes()))
    packed = prepare(train=files, dev=dev, out=tmp_path / "packed", settings=SETTINGS)
    assert packed.digest == plain.digest
    assert packed.facts.splits["train"].source.raw == plain.facts.splits["train"].source.raw
    before, after = contents(tmp_path / "plain"), contents(tmp_path / "packed")
    assert {name for name in before if before[name] != after[name]} == {"corpus.json"}


def test_two_runs_give_the_same_bytes_wherever_they_are(train: Files, dev: Files, tmp_path: Path) -> None:
    prepare(train=train, dev=dev, out=tmp_path / "one", settings=SETTINGS)
    elsewhere = tmp_path / "else" / "where"
    elsewhere.mkdir(parents=True)
    moved = [Path(shutil.copy(path, elsewhere)) for path in (*train, *dev)]
    prepare(train=(moved[0], moved[1]), dev=(moved[2], moved[3]), out=elsewhere / "two", settings=SETTINGS)
    assert contents(tmp_path / "one") == contents(elsewhere / "two")


def test_the_digest_follows_the_contents(train: Files, dev: Files, tmp_path: Path) -> None:
    digests = {prepare(train=train, dev=dev, out=tmp_path / "a", settings=SETTINGS).digest}
    other_seed = CorpusConfig(vocab_size=400, seed=2)
    digests.add(prepare(train=train, dev=dev, out=tmp_path / "b", settings=other_seed).digest)
    named = prepare(train=train, dev=dev, out=tmp_path / "c", settings=SETTINGS, languages=("eng", "deu"))
    digests.add(named.digest)
    dev[1].write_text(dev[1].read_text().replace("Hund", "Hund!", 1))
    digests.add(prepare(train=train, dev=dev, out=tmp_path / "d", settings=SETTINGS).digest)
    assert len(digests) == 4


def test_shuffling_is_fixed_for_ever() -> None:
    pairs = [(str(number), "") for number in range(10)]
    assert [source for source, _ in shuffle(pairs, 1)] == list("9247508631")


@pytest.mark.parametrize(("pairs", "expected"), [(999_999, 8000), (1_000_000, 32000)])
def test_the_vocabulary_grows_with_the_corpus(pairs: int, expected: int) -> None:
    assert module._default_vocabulary(pairs) == expected


def test_the_default_vocabulary_is_recorded(train: Files, dev: Files, tmp_path: Path) -> None:
    facts = prepare(train=train, dev=dev, out=tmp_path / "corpus", settings=CorpusConfig()).facts
    assert facts.settings.vocab_size is None
    assert facts.vocabulary.requested == 8000
    assert 300 < facts.vocabulary.actual < 1000


def test_progress_starts_at_nothing_and_ends_complete(train: Files, dev: Files, tmp_path: Path) -> None:
    calls: dict[str, list[tuple[int, int | None]]] = {}
    prepare(
        train=train,
        dev=dev,
        out=tmp_path / "corpus",
        settings=SETTINGS,
        progress=lambda stage, done, total: calls.setdefault(stage, []).append((done, total)),
    )
    assert list(calls) == ["read dev", "read and clean train", "learn vocabulary", "encode train", "encode dev"]
    for steps in calls.values():
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] != 0
        assert steps == sorted(steps, key=lambda step: step[0])
