"""Disks that fail under real trainings: on the first host and on others, for a while or for good."""

from __future__ import annotations

import re
import shutil
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import EXCHANGE_FILE, MODEL_FILE, OPTIMIZER_FILE
from testbed.journals import read_journal
from tests.disks import small_disk
from tests.training.checkpoints.test_mirror import ssh_server
from tests.training.processes import read_until, run_training, started_ranks, train_on_hosts
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


@pytest.mark.parametrize(
    ("full", "by_ssh"),
    [(1, False), pytest.param(0, False, marks=pytest.mark.long), pytest.param(1, True, marks=pytest.mark.long)],
    ids=["second", "first", "second by ssh"],
)
def test_the_last_checkpoint_of_hosts_one_of_which_has_a_full_disk_is_gone_on_from(
    full: int, by_ssh: bool, tiny_corpus: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the mirror, whole: until that host has room for its part of it the run is not continued from another."""
    with ExitStack() as stack:
        target = place = str(tmp_path / "place")
        if by_ssh:
            monkeypatch.setenv("RSYNC_RSH", stack.enter_context(ssh_server(tmp_path)))
            target = f"127.0.0.1:{place}"
        disk = stack.enter_context(small_disk(tmp_path / "disk", "16m"))
        runs = [tmp_path / "run", tmp_path / "run"]
        runs[full] = disk / "run"
        # Half of the time to stop is for the mirror, and logins take longer on a busy machine.
        settings = (*WAYS["int4"], f"checkpoint.mirror={target}", "train.stop_seconds=600")
        with started_ranks([tiny_corpus] * 2, runs, TWO_HOSTS, *settings, "train.max_steps=100000") as ranks:
            # By then there is one checkpoint that all hosts have.
            read_until("step 7/", ranks[0])
            filler = fill(disk)
            ranks[0].send_signal(signal.SIGTERM)
            said, _ = ranks[0].communicate()[1], ranks[1].communicate()
            assert [rank.returncode for rank in ranks] == [2, 2], said
        found = re.search(rf"the state after step (\d+) is saved in {re.escape(target)}, and", said)
        assert found, said
        step = int(found[1])
        rest = (*settings, f"train.max_steps={step + 3}")
        first, second = train_on_hosts([tiny_corpus] * 2, runs, TWO_HOSTS, *rest)
        assert (first.returncode, second.returncode) == (2, 2), first.stdout
        assert f"step-{step:08d}: the disk is full, and the mirror {target} has this checkpoint; make room" in (
            first.stderr
        )
        filler.unlink()
        first, second = train_on_hosts([tiny_corpus] * 2, runs, TWO_HOSTS, *rest)
        assert (first.returncode, second.returncode) == (0, 0), first.stderr
        assert f"continuing after step {step}" in first.stdout
        left_alone = tmp_path / "left alone"
        for process in train_on_hosts([tiny_corpus] * 2, [left_alone] * 2, TWO_HOSTS, *WAYS["int4"], rest[-1]):
            assert process.returncode == 0, process.stderr
        for name in (MODEL_FILE, OPTIMIZER_FILE):
            ends = [run / f"checkpoints/step-{step + 3:08d}" / name for run in (runs[0], left_alone)]
            assert ends[0].read_bytes() == ends[1].read_bytes()
        for host, run in enumerate(runs):
            memory = f"hosts/host-{host}/step-{step + 3:08d}/{EXCHANGE_FILE}"
            assert (run / memory).read_bytes() == (left_alone / memory).read_bytes()
