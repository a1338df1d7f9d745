"""Disks that fail under real trainings: on the first host and on others, for a while or for good."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import EXCHANGE_FILE, MODEL_FILE, OPTIMIZER_FILE
from testbed.journals import read_journal
from tests.disks import small_disk
from tests.training.processes import run_training, train_on_hosts
from tests.training.test_exchange import SETTINGS, TWO_HOSTS, WAYS

pytestmark = pytest.mark.slow


def fill(disk: Path) -> Path:
    """Leave no byte on a small disk; the file that takes the room."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return disk / "filler"


def test_a_full_disk_of_another_host_costs_its_journal_and_is_told_by_the_first(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        fill(disk)
        runs = (tmp_path / "run", disk / "run")
        first, second = train_on_hosts([tiny_corpus] * 2, runs, TWO_HOSTS, *WAYS["allreduce"])
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    said = [line for line in first.stdout.splitlines() if "rank-1.jsonl" in line]
    assert len(said) == 1
    assert said[0].startswith(f"note: rank 1 on b: {disk}/run/journal/rank-1.jsonl: cannot be written (")
    assert "the disk is full" in said[0]
    assert "Errno" not in first.stdout + first.stderr + second.stdout + second.stderr
    assert (tmp_path / "run/checkpoints/step-00000006").is_dir()


def test_a_host_that_cannot_keep_its_part_of_the_first_checkpoint_is_named_with_path_and_reason(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        runs = (tmp_path / "run", disk / "run")
        first, second = train_on_hosts([tiny_corpus] * 2, runs, TWO_HOSTS, *WAYS["int4"])
    assert (first.returncode, second.returncode) == (2, 2)
    place = f"rank 1 on b: {disk}/run/hosts/host-1/step-00000003: cannot save the checkpoint (the disk is full)"
    assert place in first.stderr
    assert second.stderr == ""
    # The weights are more than nothing.
    assert (tmp_path / "run/checkpoints/step-00000003").is_dir()


def test_a_step_for_which_a_host_lacks_its_part_is_gone_back_from(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """As after an emergency, in which only the first host has saved: the run goes back, and ends with the same bits."""
    runs = (tmp_path / "first", tmp_path / "second")
    for process in train_on_hosts([tiny_corpus] * 2, runs, TWO_HOSTS, *WAYS["int4"]):
        assert process.returncode == 0, process.stderr
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "first/checkpoints/step-00000006", whole)
    exchange = tmp_path / "second/hosts/host-1/step-00000006"
    memory = (exchange / EXCHANGE_FILE).read_bytes()
    shutil.rmtree(exchange)
    first, second = train_on_hosts([tiny_corpus] * 2, runs, TWO_HOSTS, *WAYS["int4"])
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert (
        "the checkpoint of step 6 cannot be resumed exactly: b lacks the exchange's state of that step; "
        "continuing from step 3: 3 steps are taken again"
    ) in first.stdout
    assert "no memory" not in first.stdout
    # The other process, which reads no checkpoint, has nothing to tell of it.
    assert "resumed exactly" not in (tmp_path / "second/journal/rank-1.jsonl").read_text()
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        assert (tmp_path / "first/checkpoints/step-00000006" / name).read_bytes() == (whole / name).read_bytes()
    assert (exchange / EXCHANGE_FILE).read_bytes() == memory
    assert not list((tmp_path / "first/checkpoints").glob("incomplete-*"))


def test_what_another_host_keeps_is_not_taken_for_a_run_or_for_something_else(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """The first host is lost with its disk, and the second is started in its place."""
    for name in ("journal", "hosts"):
        (tmp_path / "run" / name).mkdir(parents=True)
    ended = run_training(tiny_corpus, tmp_path / "run", *SETTINGS)
    assert ended.returncode == 2
    assert "holds what a host keeps that is not the first of a run (hosts, journal)" in ended.stderr
    assert "name its checkpoint.mirror, or choose another --run" in ended.stderr


def test_hosts_that_lose_their_disks_all_come_back_from_the_mirror(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    place = tmp_path / "place"
    settings = (*WAYS["int4"], f"checkpoint.mirror={place}")
    lost, found = ((tmp_path / name / "first", tmp_path / name / "second") for name in ("lost", "found"))
    for process in train_on_hosts([tiny_corpus] * 2, lost, TWO_HOSTS, *settings):
        assert process.returncode == 0, process.stderr
    # As if the machines had died after step 3.
    for tree in ("checkpoints", "hosts/host-0", "hosts/host-1"):
        shutil.rmtree(place / tree / "step-00000006")
    first, second = train_on_hosts([tiny_corpus] * 2, found, TWO_HOSTS, *settings)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "continuing after step 3" in first.stdout
    assert "no memory" not in first.stdout
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        ends = [(run[0] / "checkpoints/step-00000006" / name).read_bytes() for run in (lost, found)]
        assert ends[0] == ends[1]
    noted = [record["kind"] for record in read_journal(found[1] / "journal/rank-1.jsonl")]
    assert noted[-1] == "ended"
