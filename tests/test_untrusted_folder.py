"""Folders from other people: no name, link or device in them makes Tandem read or write outside of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.exporting.export_run import export
from tandem.layout import CORPUS_FILE, EXPORT_FILE, MODEL_FILE, RUN_FILE, STATE_FILE, SUMS_FILE, TOKENIZER_FILE
from tandem.storage import sha256_of
from tandem.training.checkpoints.checkpoint import DamagedCheckpointError, read
from tandem.training.checkpoints.checkpoint_store import CheckpointStore
from tandem.translation.exported_folder import ExportFacts, described_file, read_export, write_facts
from tandem.untrusted_folder import foreign_entry, foreign_name

OUTSIDE = ("../secret", "/etc/passwd", "a/../../secret", "..", "", "a//b", "./a", "a\\..\\b", "a\0b")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_are_told(name: str) -> None:
    assert foreign_name(["model.bin", "train/00000.source.npy"]) is None
    assert repr(name) in (foreign_name(["model.bin", name]) or "")


def test_links_that_lead_out_and_devices_are_told(tmp_path: Path) -> None:
    folder, secret = tmp_path / "real" / "folder", tmp_path / "secret"
    (folder / "train").mkdir(parents=True)
    secret.write_text("s")
    (folder / "file").write_text("f")
    (folder / "train" / "same").symlink_to("../file")
    (folder / "circle").symlink_to("circle")
    (tmp_path / "link").symlink_to(folder)
    assert foreign_entry(folder) is foreign_entry(tmp_path / "link") is None
    (folder / "train" / "out").symlink_to(secret)
    assert (foreign_entry(folder) or "").startswith("train/out is a link that leads out of it")
    (folder / "train" / "out").unlink()
    (folder / "there").symlink_to(tmp_path)
    assert "there is a link" in (foreign_entry(folder) or "")
    (folder / "there").unlink()
    os.mkfifo(folder / "pipe")
    assert foreign_entry(folder) == "pipe is neither a file nor a folder"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("only for its owner")
    return path


Plant = Callable[[Path, Path], None]


def link(name: str) -> Plant:
    """Replaces a file of a folder by a link to one outside."""

    def plant(folder: Path, secret: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(secret)

    return plant


def pipe(name: str) -> Plant:
    """Replaces a file of a folder by a pipe that nobody writes to, which whoever opens it waits for."""

    def plant(folder: Path, secret: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return plant


def listed(facts: str) -> Plant:
    """Lists a file outside, with its right size and digest, among the folder's own."""

    def plant(folder: Path, secret: Path) -> None:
        content = json.loads((folder / facts).read_text())
        where = os.path.relpath(secret, folder)
        content["files"][where] = {"bytes": secret.stat().st_size, "sha256": sha256_of(secret)}
        (folder / facts).write_text(json.dumps(content))
        if (folder / SUMS_FILE).exists():
            sum_anew(folder)

    return plant


def sum_anew(checkpoint: Path) -> None:
    """Write the digests of a checkpoint whose files were changed."""
    names = sorted(path.name for path in checkpoint.iterdir() if path.name != SUMS_FILE)
    sums = "".join(f"{sha256_of(checkpoint / name)}  {name}\n" for name in names)
    (checkpoint / SUMS_FILE).write_text(sums)


@pytest.mark.parametrize(
    "plant", [link(MODEL_FILE), link(STATE_FILE), pipe(STATE_FILE), pipe(MODEL_FILE), listed(STATE_FILE)]
)
def test_a_checkpoint_reads_only_its_own_files(trained: Path, secret: Path, tmp_path: Path, plant: Plant) -> None:
    newest = CheckpointStore(trained).newest(1)[0].directory
    run = tmp_path / "run"
    older, hostile = run / "checkpoints" / "step-00000001", run / "checkpoints" / newest.name
    shutil.copytree(newest, hostile)
    shutil.copytree(newest, older)
    state = json.loads((older / STATE_FILE).read_text())
    state["numbers"]["progress"]["step"] = 1
    (older / STATE_FILE).write_text(json.dumps(state))
    sum_anew(older)
    plant(hostile, secret)
    with pytest.raises(DamagedCheckpointError, match="not read: "):
        read(hostile)
    # A run passes it over like a damaged one.
    found = CheckpointStore(run).newest(2)
    assert [checkpoint.directory for checkpoint in found] == [older]


@pytest.mark.parametrize(
    "plant",
    [link(TOKENIZER_FILE), link("dev/source.txt"), pipe("train/order.npy"), pipe(CORPUS_FILE), listed(CORPUS_FILE)],
)
def test_a_corpus_reads_only_its_own_files(
    tiny_corpus: PreparedCorpus, secret: Path, tmp_path: Path, plant: Plant
) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(tiny_corpus.directory, folder)
    PreparedCorpus.open(folder).verify()
    plant(folder, secret)
    with pytest.raises(TandemError, match="not read: "):
        PreparedCorpus.open(folder)


@pytest.mark.parametrize("plant", [link(TOKENIZER_FILE), pipe(EXPORT_FILE), listed(EXPORT_FILE)])
def test_an_exported_model_reads_only_its_own_files(trained: Path, secret: Path, tmp_path: Path, plant: Plant) -> None:
    folder = tmp_path / "exported"
    folder.mkdir()
    shutil.copy(trained / TOKENIZER_FILE, folder)
    facts = {"tandem": "1", "quantization": "int8", "source_language": "en", "target_language": "de", "step": 1}
    files = {TOKENIZER_FILE: described_file(folder / TOKENIZER_FILE).model_dump()}
    write_facts(folder, ExportFacts.model_validate({**facts, "max_length": 9, "search": {}, "files": files}))
    read_export(folder)
    plant(folder, secret)
    with pytest.raises(TandemError, match="not read: "):
        read_export(folder)


@pytest.mark.slow
def test_a_runs_languages_cannot_name_places(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    facts = json.loads((run / RUN_FILE).read_text())
    (run / RUN_FILE).write_text(json.dumps({**facts, "languages": ["../../../planted", "de"]}))
    with pytest.raises(TandemError, match="languages become file names in an export, but it lists"):
        export(run, tmp_path / "out", to="argos")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
