"""What `prepare` refuses: in one line, naming file, line and remedy, and without a trace on the disk."""

from __future__ import annotations

import fcntl
import gzip
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import generate
from tandem.errors import TandemError

pytestmark = pytest.mark.slow

Files = tuple[Path, Path]
Pairs = list[tuple[str, str]]
Refused = Callable[..., str]

SETTINGS = CorpusConfig(vocab_size=400)


def tree(directory: Path) -> dict[str, bytes | None]:
    """Everything under a directory, hidden files and empty folders too."""
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None for p in directory.rglob("*")}


@pytest.fixture
def exam(write_pair: Callable[[str, Pairs], Files], sentences: Pairs) -> Files:
    return write_pair("test", sentences[2::4])


@pytest.fixture
def refused(tmp_path: Path, train: Files, dev: Files, exam: Files) -> Refused:
    """Runs `prepare`, which must fail with one line and leave the disk as it was; gives the line."""

    def run(**changes: Any) -> str:
        before = tree(tmp_path)
        files: dict[str, Any] = {"train": [train], "dev": dev, "test": exam}
        files |= {split: changes.pop(split) for split in files.keys() & changes.keys()}
        options: dict[str, Any] = {"out": tmp_path / "new" / "corpus", "settings": SETTINGS} | changes
        with pytest.raises(TandemError) as caught:
            prepare(CorpusTexts(**files), **options)
        assert tree(tmp_path) == before
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return run


def _append(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes() + data)


def _replace(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _line(number: int, line: bytes) -> Callable[[Path], object]:
    """Puts another line in the place of one, which leaves all others in theirs."""

    def put(path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        lines[number - 1] = line
        path.write_bytes(b"\n".join(lines))

    return put


def _make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("train.de", _append(b"eins\nzwei\n"), r"train\.en has 64 lines but .*train\.de has 66; .* after line 64$"),
        ("dev.en", _append(b"more\n"), r"dev\.en has 21 lines but .*dev\.de has 20; .* after line 20$"),
        ("dev.en", _line(5, b"f\xfcr"), r"dev\.en:5: not UTF-8 \(byte 2 .* 0xfc\); .*iconv -f LATIN1 -t UTF-8$"),
        ("dev.en", _line(20, b"cut \xe2\x82"), r"dev\.en:20: not UTF-8 \(byte 5 .* 0xe2\); .*iconv"),
        ("dev.en", _line(3, b"x" * (1 << 20) + b"y"), r"dev\.en:3: longer than 1048576 bytes, .*; check the file$"),
        ("train.de", lambda path: path.write_text(path.read_text(), "latin-1"), r"train\.de: 32 of 64 lines \(50%\)"),
        ("dev.de", _replace("a\n".encode("utf-16")), r"dev\.de: not UTF-8 but UTF-16LE; convert it: iconv -f UTF-16LE"),
        ("train.de", _replace(b""), r"train\.de: the file is empty; give a file with one sentence a line$"),
        ("test.en", _replace(b""), r"test\.en: the file is empty; give"),
        ("dev.de", Path.unlink, r"dev\.de: no such file; check the path$"),
        ("test.de", _make_directory, r"test\.de: this is a directory; give a text file$"),
        ("train.en", _replace(gzip.compress(b"a\n")), r"train\.en: this is a gzip file; rename it to train\.en\.gz$"),
        (
            "train.en",
            _replace(b" \n" * 63 + b"x " * 81),
            r"train\.en and .*train\.de: cleaning dropped every pair \(empty_side 63, too_many_words 1\); "
            r"check the files, or change the corpus settings$",
        ),
    ],
)
def test_bad_files(tmp_path: Path, refused: Refused, name: str, spoil: Callable[[Path], object], message: str) -> None:
    spoil(tmp_path / name)
    assert re.search(message, error := refused()), error
    assert str(tmp_path / name) in error


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda packed: b"not packed\n", r"train\.en\.gz: not a gzip file .*; rename it or compress it$"),
        (lambda packed: packed[:-50], r"train\.en\.gz: the gzip file is cut short after line \d+; fetch or compress"),
        (lambda packed: packed[:5], r"train\.en\.gz: the gzip file is cut short after line 0; fetch or compress"),
        (lambda packed: packed[:40] + b"\xff" * 40 + packed[80:], r"train\.en\.gz: the gzip file is damaged after"),
        (lambda packed: packed + b"rubbish", r"train\.en\.gz: the gzip file is damaged after line 64 "),
        (lambda packed: b"", r"train\.en\.gz: the file is empty"),
    ],
)
def test_bad_gzip_files(
    tmp_path: Path, train: Files, refused: Refused, spoil: Callable[[bytes], bytes], message: str
) -> None:
    packed = tmp_path / "train.en.gz"
    packed.write_bytes(spoil(gzip.compress(train[0].read_bytes())))
    assert re.search(message, error := refused(train=[(packed, train[1])])), error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission(dev: Files, refused: Refused) -> None:
    dev[0].chmod(0)
    assert re.search(r"dev\.en: cannot be read .*permission", refused())


def test_one_file_for_both_sides(tmp_path: Path, train: Files, refused: Refused) -> None:
    link = tmp_path / "link.de"
    link.symlink_to(train[0])
    for target in (train[0], link):
        error = refused(train=[(train[0], target)])
        assert error.startswith(f"--train {train[0]} {target}: source and target are the same file; give one")


def test_swapped_names_and_unknown_languages(tmp_path: Path, train: Files, dev: Files, refused: Refused) -> None:
    assert f"swap them: --dev {dev[0]} {dev[1]}" in refused(dev=dev[::-1])
    plain = (tmp_path / "a", tmp_path / "b")
    for path, copy in zip(train, plain, strict=True):
        copy.write_bytes(path.read_bytes())
    assert "--languages en de" in refused(train=[plain])


@pytest.mark.parametrize("split", ["dev", "test"])
def test_swapped_contents(tmp_path: Path, split: str, refused: Refused) -> None:
    source, target = tmp_path / f"{split}.en", tmp_path / f"{split}.de"
    english, german = source.read_bytes(), target.read_bytes()
    source.write_bytes(german)
    target.write_bytes(english)
    error = refused()
    assert f"{source} reads like {tmp_path / 'train.de'}" in error
    assert f"swap them: --{split} {target} {source}" in error


def test_too_small_a_vocabulary(refused: Refused) -> None:
    assert re.search("vocab_size 100 is too small", refused(settings=CorpusConfig(vocab_size=100)))


def test_an_existing_place(tmp_path: Path, train: Files, dev: Files, refused: Refused) -> None:
    out = tmp_path / "corpus"
    prepare(CorpusTexts([train], dev), out, SETTINGS)
    assert refused(out=out) == f"{out}: already exists; give another --out, or --overwrite to replace it"
    dev[0].write_bytes(b"")
    assert "empty" in refused(out=out, overwrite=True)  # and the old corpus is untouched


def test_overwriting_replaces_a_corpus_whole(tmp_path: Path, train: Files, dev: Files, exam: Files) -> None:
    out = tmp_path / "corpus"
    old = prepare(CorpusTexts([train], dev, exam), out, SETTINGS)
    link = tmp_path / "link"
    link.symlink_to(out)
    new = prepare(CorpusTexts([train], dev), link, SETTINGS, overwrite=True)
    assert new.digest != old.digest
    assert not (out / "test").exists()
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"corpus", "link"}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert prepare(CorpusTexts([train], dev), empty, SETTINGS, overwrite=True).digest == new.digest


def test_overwriting_spares_what_is_no_corpus(tmp_path: Path, refused: Refused) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("ten years")
    for out, overwrite in product((home, home / "thesis.tex"), (True, False)):
        assert refused(out=out, overwrite=overwrite) == (
            f"{out}: not a prepared corpus, so --overwrite leaves it alone; give another --out"
        )


def test_a_place_that_cannot_be_written(train: Files, refused: Refused) -> None:
    assert re.search(
        r"train\.en/corpus: cannot be written \(.+\); choose another --out", refused(out=train[0] / "corpus")
    )


def test_a_place_taken_in_the_meantime(tmp_path: Path, train: Files, dev: Files) -> None:
    out = tmp_path / "corpus"

    def take(stage: str, done: int, total: int | None, unit: str = "") -> None:
        out.mkdir(exist_ok=True)
        (out / "mine").write_text("precious")

    with pytest.raises(
        TandemError, match=r"corpus: not finished \(.*corpus: not a prepared corpus.* goes on where it stopped"
    ):
        prepare(CorpusTexts([train], dev), out, SETTINGS, progress=take)
    assert tree(out) == {"mine": b"precious"}
    # Hours of work may be in what was built: it is finished in a moment once there is room.
    shutil.rmtree(out)
    stages = set()
    prepare(CorpusTexts([train], dev), out, SETTINGS, progress=lambda stage, done, total, unit="": stages.add(stage))
    assert "learn vocabulary" not in stages


def test_a_file_changed_in_the_meantime(train: Files, refused: Refused) -> None:
    def change(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "learn vocabulary":
            os.utime(train[0], ns=(1, 1))

    assert f"{train[0]}: was changed while it was being read; start again" in refused(progress=change)


def test_a_file_cut_short_in_the_meantime(tmp_path: Path, train: Files, dev: Files) -> None:
    def cut(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "clean train":
            os.truncate(train[0], 100)

    with pytest.raises(TandemError, match=r"train\.en: was changed while it was being read; start again$"):
        prepare(CorpusTexts([train], dev), tmp_path / "corpus", SETTINGS, progress=cut)
    assert not (tmp_path / "corpus").exists()


def test_a_broken_partner_is_not_blamed_on_empty_lines(tmp_path: Path, refused: Refused) -> None:
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    source.write_bytes(b"\n" * 64)
    target.write_bytes(b"f\xfcr\n" * 64)
    assert f"{target}: 64 of 64 lines" in refused()


def test_swapped_contents_of_another_training_text(tmp_path: Path, train: Files, refused: Refused) -> None:
    other = (tmp_path / "other.en", tmp_path / "other.de")
    for path, origin in zip(other, reversed(train), strict=True):
        path.write_bytes(origin.read_bytes())
    assert f"swap them: --train {other[1]} {other[0]}" in refused(train=[train, other])


def test_texts_that_have_nothing_in_common(tmp_path: Path, dev: Files) -> None:
    pairs = generate(4000).train
    files = (tmp_path / "strange.en", tmp_path / "strange.de")
    files[0].write_text("".join(f"{pair.source}\n" for pair in pairs))
    files[1].write_text("".join(f"{pair.target}\n" for pair in random.Random(1).sample(pairs, len(pairs))))
    with pytest.raises(TandemError, match=r"do not look like translations of each other: .*check_alignment=false"):
        prepare(CorpusTexts([files], dev), tmp_path / "corpus", SETTINGS)


@pytest.mark.parametrize("equally_many", [False, True])
def test_a_shifted_side(tmp_path: Path, dev: Files, equally_many: bool, demo_text: Path) -> None:
    source, target = (tmp_path / f"shifted.{language}" for language in ("en", "de"))
    english, german = ((demo_text / f"train.{language}").read_bytes().splitlines() for language in ("en", "de"))
    half = len(german) // 2
    source.write_bytes(b"\n".join(english) + b"\n")
    target.write_bytes(b"\n".join(german[:half] + german[half + 1 :] + [b"Ende."] * equally_many) + b"\n")
    with pytest.raises(TandemError) as caught:
        prepare(CorpusTexts([(source, target)], dev), tmp_path / "corpus", SETTINGS)
    message = str(caught.value)
    found = re.search(r"from about line ([\d,]+)", message)
    assert found, message
    assert abs(int(found[1].replace(",", "")) - half) < 200
    assert ("has 400 lines but" in message) != equally_many
    if equally_many:
        as_they_are = CorpusConfig(vocab_size=400, check_alignment=False)
        prepare(CorpusTexts([(source, target)], dev), tmp_path / "corpus", as_they_are)


def test_a_second_run_into_the_same_place_waits_for_nobody(tmp_path: Path, refused: Refused) -> None:
    work = tmp_path / ".corpus.partial"
    work.mkdir()
    (work / "half").write_text("done by the other run")
    with (work / "lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another `tandem prepare` is writing it" in refused(out=tmp_path / "corpus")


def test_importing_the_room_is_cheap_and_without_torch() -> None:
    program = (
        "import sys, tandem.corpus.prepare.pipeline; sys.exit('torch' in sys.modules or 'sentencepiece' in sys.modules)"
    )
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True)
    assert time.monotonic() - started < 5
