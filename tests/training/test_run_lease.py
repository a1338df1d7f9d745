"""Where the file system knows no locks: two trainings of one run are noticed all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tandem.config import CheckpointConfig, Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import LEASE_FILE, checkpoint_directories
from tandem.training import run_lease
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.merits import Merits
from tandem.training.run_lease import RunLease, check_lease, leased
from tandem.training.train_state import TrainState
from testbed import no_locks
from tests.training.checkpoints.test_checkpoint import take_step
from tests.training.processes import train_command

ELSEWHERE = {"token": "theirs", "host": "vm9", "process": 1, "started": 1.0, "machine": "another"}


def at_once(seconds: float) -> None:
    """Time that passes without anything happening."""


def lease_of(path: Path, **facts: Any) -> Path:
    path.write_text(json.dumps(ELSEWHERE | facts))
    return path


def test_a_lease_of_a_living_process_is_respected(tmp_path: Path) -> None:
    path = tmp_path / LEASE_FILE
    first = RunLease(path)
    first.take(at_once)
    with pytest.raises(TandemError, match=rf"another process is training here \(process {os.getpid()} on "):
        RunLease(path).take(at_once)
    first.release()
    assert not path.exists()


def test_a_living_process_lives_however_its_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day at which a process began moves with the clock."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    path, began = tmp_path / LEASE_FILE, iter(range(100))
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: float(next(began)))
    first = RunLease(path)
    first.take(at_once)
    with pytest.raises(TandemError, match="another process is training here"):
        RunLease(path).take(at_once)
    first.release()


def test_without_proc_the_time_of_its_start_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lease, "_PROC_SELF", tmp_path / "nothing")
    path = tmp_path / LEASE_FILE
    first = RunLease(path)
    first.take(at_once)
    assert json.loads(path.read_text())["started"] == psutil.Process().create_time()
    with pytest.raises(TandemError, match="another process is training here"):
        RunLease(path).take(at_once)
    first.release()


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_at_once(tmp_path: Path) -> None:
    # Its number may be another's by now, who began at another time.
    path = lease_of(tmp_path / LEASE_FILE, machine=run_lease._machine(), process=os.getpid(), started=1.0)
    lease = RunLease(path)
    lease.take(at_once)
    lease.release()


def test_the_lease_of_another_machine_lives_while_it_is_touched(tmp_path: Path) -> None:
    path = lease_of(tmp_path / LEASE_FILE)

    def touched(seconds: float) -> None:
        os.utime(path, ns=(1, 1))

    with pytest.raises(TandemError, match=r"another process is training here \(process 1 on vm9\)"):
        RunLease(path).take(touched)


def test_and_is_dead_when_it_lies_still(tmp_path: Path) -> None:
    lease = RunLease(lease_of(tmp_path / LEASE_FILE))
    waited: list[float] = []
    lease.take(waited.append)
    assert sum(waited) == run_lease.STILL_SECONDS + run_lease.RACE_SECONDS
    lease.release()


def test_of_two_that_come_together_the_first_gives_way(tmp_path: Path) -> None:
    path = tmp_path / LEASE_FILE

    def another_writes(seconds: float) -> None:
        lease_of(path)

    with pytest.raises(TandemError, match="on vm9"):
        RunLease(path).take(another_writes)


def test_whoever_has_lost_the_lease_writes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lease, "RACE_SECONDS", 0.0)
    check_lease(tmp_path)
    with leased(tmp_path / LEASE_FILE):
        check_lease(tmp_path)
        lease_of(tmp_path / LEASE_FILE)
        with pytest.raises(TandemError, match="on vm9"):
            check_lease(tmp_path)
    # It is not this process's to remove.
    assert (tmp_path / LEASE_FILE).exists()


def test_nor_does_it_remove_anything(
    tiny_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lease, "RACE_SECONDS", 0.0)
    store = WritableCheckpointStore(tmp_path, CheckpointConfig(keep_last=1, keep_best=1))
    state = TrainState.fresh(tiny_config(), 64, torch.device("cpu"))
    store.saving_if_best(state, Merits.of_bleu(10.0))()
    for _ in range(2):
        take_step(state)
        store.saving(state)()
    with leased(tmp_path / LEASE_FILE):
        lease_of(tmp_path / LEASE_FILE)
        for refused in (
            store.saving(state),
            store.saving_if_best(state, Merits.of_bleu(20.0)),
            lambda: store.go_back_to(1, ()),
        ):
            with pytest.raises(TandemError, match="on vm9"):
                refused()
        # What one process alone does is left undone: the others learn of it from the next write.
        store.settle(2)
        store.withdraw(1)
    assert list(checkpoint_directories(store.last_directory)) == [1, 2]
    assert list(checkpoint_directories(store.best_directory)) == [0]


def test_damage_is_no_lease(tmp_path: Path) -> None:
    path = tmp_path / LEASE_FILE
    path.write_text("{")
    lease = RunLease(path)
    lease.take(at_once)
    lease.release()


@pytest.mark.slow
def test_two_trainings_without_locks_are_noticed_and_a_killed_one_is_not_in_the_way(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    library = no_locks.build(tmp_path)
    if library is None:
        pytest.skip("no compiler for a library that refuses locks")
    run, environment = tmp_path / "run", {**os.environ, "LD_PRELOAD": str(library)}
    endless = train_command(tiny_corpus, run, "train.max_steps=1000000", "schedule.kind=inverse_sqrt")
    finite = train_command(tiny_corpus, run, "train.max_steps=6", "schedule.kind=inverse_sqrt")
    with subprocess.Popen(endless, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        while not first.stdout.readline().startswith("saved "):
            assert first.poll() is None
        second = subprocess.run(finite, env=environment, capture_output=True, text=True)
        assert second.returncode == 2
        assert f"another process is training here (process {first.pid} on " in second.stderr
        first.send_signal(signal.SIGKILL)
        first.stdout.read()
    third = subprocess.run(finite, env=environment, capture_output=True, text=True)
    assert third.returncode == 0, third.stderr
    assert not (run / LEASE_FILE).exists()
