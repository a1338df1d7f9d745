"""A prepare that was stopped goes on where it stopped, and ends with the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tests.disks import small_disk

Files = tuple[Path, Path]

SETTINGS = CorpusConfig(vocab_size=400)
CHUNK = 1 << 16

# Prepares, tells where each stage begins, and kills itself, with the processes it has started, in one of them.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts

def watch(stage, done, total, unit=""):
    begun.setdefault(stage, done)
    if [stage, done] == fatal or fatal == [stage, None]:
        print(json.dumps(begun), flush=True)
        os.killpg(0, signal.SIGKILL)

if __name__ == "__main__":
    begun, fatal = {}, json.loads(sys.argv[1])
    paths = [Path(name) for name in sys.argv[2:]]
    texts = CorpusTexts([(paths[0], paths[1])], (paths[2], paths[3]))
    prepare(texts, paths[4], CorpusConfig(vocab_size=400), jobs=2, progress=watch)
    print(json.dumps(begun), flush=True)
"""


def contents(directory: Path) -> dict[str, bytes]:
    """Every file under a directory, hidden ones too."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def packed(many: Files) -> Files:
    """Many pairs, gzipped: these are unpacked beside the corpus first."""
    source, target = (path.with_name(f"{path.name}.gz") for path in many)
    source.write_bytes(gzip.compress(many[0].read_bytes()))
    target.write_bytes(gzip.compress(many[1].read_bytes()))
    return source, target


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_with_the_same_bytes(tmp_path: Path, packed: Files, dev: Files) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    out = tmp_path / "corpus"

    def begun(fatal: tuple[str, int | None]) -> dict[str, int]:
        command = [sys.executable, str(script), json.dumps(fatal), *map(str, (*packed, *dev, out))]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True, timeout=120)
        assert ended.returncode == (0 if fatal[0] == "never" else -signal.SIGKILL)
        found: dict[str, int] = json.loads(ended.stdout)
        return found

    assert "read train" in begun(("read train", None))
    assert "check train" in begun(("check train", 0))
    assert begun(("clean train", CHUNK))["clean train"] == 0
    assert not out.exists()
    stages = begun(("find duplicates", 0))
    assert "read train" not in stages
    assert stages["clean train"] == CHUNK
    assert begun(("count words", 0))["clean train"] == 70_000
    assert "learn vocabulary" in begun(("learn vocabulary", 0))
    assert begun(("encode train", CHUNK))["encode train"] == 0
    stages = begun(("sort by length", 0))
    assert "learn vocabulary" not in stages
    assert stages["encode train"] == CHUNK
    assert begun(("take checksums", 3))["encode train"] == 70_000
    assert begun(("never", None))["encode train"] == 70_000
    assert not (tmp_path / ".corpus.partial").exists()
    prepare(CorpusTexts([packed], dev), tmp_path / "alone", SETTINGS)
    assert contents(out) == contents(tmp_path / "alone")


def test_other_settings_or_texts_begin_anew(tmp_path: Path, train: Files, dev: Files) -> None:
    out = tmp_path / "corpus"

    def interrupt(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "learn vocabulary":
            raise KeyboardInterrupt

    def stop(settings: CorpusConfig) -> None:
        with pytest.raises(KeyboardInterrupt):
            prepare(CorpusTexts([train], dev), out, settings, progress=interrupt)
        assert (tmp_path / ".corpus.partial").is_dir()

    stop(CorpusConfig(vocab_size=400, max_words=4))
    stop(SETTINGS)
    train[0].write_text(train[0].read_text().replace("cat", "fox"))
    (tmp_path / ".corpus.partial" / "built" / "stray").write_text("x")
    prepare(CorpusTexts([train], dev), out, SETTINGS)
    prepare(CorpusTexts([train], dev), tmp_path / "alone", SETTINGS)
    assert contents(out) == contents(tmp_path / "alone")


def test_what_a_killed_writer_left_is_no_part_of_the_corpus(tmp_path: Path, train: Files, dev: Files) -> None:
    out, partial = tmp_path / "corpus", tmp_path / ".corpus.partial"

    def interrupt(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "take checksums" and done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(CorpusTexts([train], dev), out, SETTINGS, progress=interrupt)
    for half in (".corpus.json.writing", "train/.00000.source.npy.writing"):
        (partial / "built" / half).write_bytes(b"half")
    prepare(CorpusTexts([train], dev), out, SETTINGS)
    prepare(CorpusTexts([train], dev), tmp_path / "alone", SETTINGS)
    assert contents(out) == contents(tmp_path / "alone")


def test_a_shard_that_a_crash_of_the_machine_swallowed_is_missed(tmp_path: Path, train: Files, dev: Files) -> None:
    out, partial = tmp_path / "corpus", tmp_path / ".corpus.partial"

    def lose(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "sort by length" and not done:
            for path in (partial / "built" / "train").glob("00000.*"):
                path.unlink()

    with pytest.raises(TandemError, match="shards"):
        prepare(CorpusTexts([train], dev), out, SETTINGS, progress=lose)
    assert not out.exists()


def test_a_corpus_moved_aside_by_a_killed_process_comes_back(tmp_path: Path, train: Files, dev: Files) -> None:
    out = tmp_path / "corpus"
    prepare(CorpusTexts([train], dev), out, SETTINGS)
    before = contents(out)
    out.rename(tmp_path / ".corpus.old")
    dev[0].write_bytes(b"")
    with pytest.raises(TandemError, match="empty"):
        prepare(CorpusTexts([train], dev), out, SETTINGS, overwrite=True)
    assert contents(out) == before


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for the corpus of `packed` and little else."""
    with small_disk(tmp_path / "disk", "16m") as mounted:
        yield mounted


def fill(disk: Path) -> Path:
    """Take all the room there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


@pytest.mark.long
def test_a_full_disk_in_any_stage(tmp_path: Path, disk: Path, packed: Files, dev: Files) -> None:
    out, filler = disk / "corpus", disk / "filler"
    for fatal in (
        "read dev",
        "read train",
        "clean train",
        "find duplicates",
        "learn vocabulary",
        "encode train",
        "encode dev",
        "sort by length",
        "take checksums",
    ):

        def watch(stage: str, done: int, total: int | None, unit: str = "", fatal: str = fatal) -> None:
            if stage == fatal and not filler.exists():
                fill(disk)

        with pytest.raises(TandemError) as caught:
            prepare(CorpusTexts([packed], dev), out, SETTINGS, jobs=1, progress=watch)
        message = str(caught.value)
        assert message.startswith(f"{out}: not finished ("), fatal
        assert "No space left on device); mend that and run the same command again" in message
        assert message.endswith(f"which goes on where it stopped, or remove {disk / '.corpus.partial'}")
        assert not out.exists()
        filler.unlink()
    prepare(CorpusTexts([packed], dev), out, SETTINGS)
    prepare(CorpusTexts([packed], dev), tmp_path / "alone", SETTINGS)
    assert contents(out) == contents(tmp_path / "alone")


@pytest.mark.slow
def test_a_full_disk_and_a_killed_worker_are_told_through_processes(
    tmp_path: Path, disk: Path, packed: Files, dev: Files
) -> None:
    filler, out = fill(disk), disk / "corpus"
    with filler.open("r+b") as file:
        file.truncate(filler.stat().st_size - (5 << 20))  # for what is unpacked, but not for what is cleaned
    with pytest.raises(TandemError, match=r"corpus: not finished \(([^ ]+: )?No space left on device\)"):
        prepare(CorpusTexts([packed], dev), out, SETTINGS, jobs=2)

    def kill(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "encode train":
            for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)

    with pytest.raises(TandemError, match=r"not finished \(a working process was ended; .*fewer --jobs\)"):
        prepare(CorpusTexts([packed], dev), tmp_path / "corpus", SETTINGS, jobs=2, progress=kill)
    prepare(CorpusTexts([packed], dev), tmp_path / "corpus", SETTINGS, jobs=2)
