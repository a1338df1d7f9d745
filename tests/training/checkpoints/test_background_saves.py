"""Checkpoints in the background: copies that training no longer changes, in their order, and disks that fail."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tandem.cluster.exchange.strategy import ExchangePlan
from tandem.cluster.world import World
from tandem.config import CheckpointConfig, Config, ExchangeConfig
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, RunPaths, checkpoint_directories
from tandem.monitor.journal import Journal, Recorder
from tandem.monitor.records import Noticed, Record, Saved
from tandem.monitor.views import View
from tandem.training.checkpoints import checkpoint_store
from tandem.training.checkpoints.background_saves import LAST_COPY_SECONDS, BackgroundSaves
from tandem.training.checkpoints.checkpoint import DamagedCheckpointError, read, write
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.checkpoints.merits import Merits
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.checkpoints.resume import find_checkpoint
from tandem.training.train_state import TrainState
from testbed import faulty_disk as fuse_disk
from tests.disks import small_disk
from tests.training.checkpoints.test_checkpoint import take_step
from tests.training.checkpoints.test_exchange_state import Forgetful

ALONE = World(0, 1, torch.device("cpu"), host_names=("vm1",))


class Heard(View):
    """A view that remembers notices and savings."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.saved: list[int] = []

    def show(self, record: Record) -> None:
        if isinstance(record, Noticed):
            self.notices.append(record.message)
        if isinstance(record, Saved):
            self.saved.append(record.step)


class Session:
    """What a training has to do with its checkpoints, without the training."""

    def __init__(self, run: Path, config: Config, journals: Path, keep_last: int, mirror: Path | None) -> None:
        self.config = config
        self.state = TrainState.fresh(config, 64, ALONE.device)
        self.heard = Heard()
        self.recorder = Recorder(Journal(journals, 0), [self.heard])
        kept = CheckpointConfig(keep_last=keep_last, mirror=None if mirror is None else str(mirror))
        self.store = WritableCheckpointStore(run, kept)
        exchange_state = ExchangeState(run, ALONE, ExchangePlan("allreduce"), ExchangeConfig(), keep_last=2)
        copies = Mirror(run, kept, ALONE)
        self.saves = BackgroundSaves(ALONE, self.store, exchange_state, copies, self.recorder, 0)

    def save(self, *, last: bool = False) -> None:
        take_step(self.state)
        self.saves.save(self.state, Forgetful(), last=last)

    def save_and_settle(self) -> None:
        self.save()
        self.saves.settle(goes_on=True)

    @property
    def steps(self) -> list[int]:
        return list(checkpoint_directories(self.store.last_directory))


Start = Callable[..., Session]


@pytest.fixture
def start(tiny_config: Callable[..., Config], tmp_path: Path) -> Start:
    def begin(run: Path, keep_last: int = 2, mirror: Path | None = None) -> Session:
        return Session(run, tiny_config(), tmp_path / "journals", keep_last, mirror)

    return begin


def test_what_is_written_is_the_state_of_its_step_whatever_comes_after(start: Start, tmp_path: Path) -> None:
    session = start(tmp_path / "run")
    take_step(session.state)
    before = {
        file: {name: tensor.clone() for name, tensor in tensors.items()}
        for file, tensors in session.state.tensors().items()
    }
    numbers = session.state.numbers()
    writing = session.store.saving(session.state)
    take_step(session.state)
    session.state.progress.note_evaluation(Merits.of_bleu(50.0))
    saved = writing()
    assert saved.step == 1
    assert saved.state["numbers"] == numbers
    for file in (MODEL_FILE, OPTIMIZER_FILE):
        assert all(torch.equal(before[file][name], tensor) for name, tensor in saved.tensors()[file].items())


def test_training_goes_on_while_a_checkpoint_is_written_and_the_next_one_waits(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is held up until the training has taken another step, and saved after it."""
    go_on, order = threading.Event(), []
    real = write

    def held_up(directory: Path, *arguments: object) -> object:
        go_on.wait(60)
        order.append(directory.name)
        return real(directory, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint_store, "write", held_up)
    session = start(tmp_path / "run")
    session.save()
    session.saves.save_if_best(session.state, Merits.of_bleu(10.0))
    assert session.saves.writing
    assert session.steps == []
    take_step(session.state)
    assert session.heard.saved == []
    go_on.set()
    session.save(last=True)
    assert order == ["step-00000001", "step-00000001", "step-00000003"]
    assert not session.saves.writing
    assert session.heard.saved == [1, 3]
    assert session.steps == [1, 3]


def test_old_ones_go_when_the_new_one_counts(start: Start, tmp_path: Path) -> None:
    session = start(tmp_path / "run", keep_last=1)
    session.save()
    session.save()
    session.saves.finish()
    # All hosts have yet to say that they have their part of the second.
    assert session.steps == [1, 2]
    session.saves.settle(goes_on=True)
    assert session.steps == [2]


def test_the_first_checkpoint_that_cannot_be_written_ends_the_run(start: Start, full_disk: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    session = start(full_disk / "run")
    session.save()
    with pytest.raises(
        TandemError,
        match=r"rank 0 on vm1: .*/run/checkpoints/step-00000001: cannot save the checkpoint \(the disk is full\); mend "
        r"that and start the run again; no checkpoint was saved yet: it begins again$",
    ):
        session.saves.settle(goes_on=True)
    # A program that only uses Tandem goes on, and still hears its signals.
    assert signal.getsignal(signal.SIGTERM) == handler


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_and_no_more(start: Start, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        session = start(disk / "run")
        session.save_and_settle()
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        for _ in range(2):
            session.save_and_settle()
        (disk / "filler").unlink()
        session.save_and_settle()
        assert session.heard.saved == [1, 4]
        assert session.steps == [1, 4]
        assert [read(session.store.last_directory / f"step-0000000{step}").step for step in (1, 4)] == [1, 4]
    place = f"rank 0 on vm1: {disk}/run/checkpoints/step-0000000"
    why = "cannot save the checkpoint (the disk is full); training goes on without the checkpoint of step"
    rest = "and tries again at the next one; until then all since step 1 would be lost with this process"
    assert session.heard.notices == [f"{place}2: {why} 2 {rest}", f"{place}3: {why} 3, 2 in a row, {rest}"]


def test_the_last_checkpoint_of_a_session_must_be_written(start: Start, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        session = start(disk / "run")
        session.save_and_settle()
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        take_step(session.state)
        with pytest.raises(
            TandemError,
            match=r"rank 0 on vm1: .*step-00000003: cannot save .* \(the disk is full\); .*"
            r"; it continues after step 1, 2 steps are taken again$",
        ):
            session.save(last=True)
        assert session.steps == [1]


def test_the_last_checkpoint_goes_straight_to_the_mirror_where_the_disk_is_full(start: Start, tmp_path: Path) -> None:
    """The run goes on from there once there is room, and until then from no older one."""
    with small_disk(tmp_path / "disk", "4m") as disk:
        place = tmp_path / "place"
        session = start(disk / "run", mirror=place)
        session.save_and_settle()
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        with pytest.raises(
            TandemError,
            match=rf"step-00000002: cannot save the checkpoint \(the disk is full\); mend that and start the run "
            rf"again; the state after step 2 is saved in {place}, and it continues from there$",
        ):
            session.save(last=True)
        assert session.steps == [1]
        assert read(place / "checkpoints/step-00000002").step == 2
        kept = CheckpointConfig(mirror=str(place))
        store = WritableCheckpointStore(disk / "run", kept, Mirror(disk / "run", kept, ALONE))
        with pytest.raises(TandemError, match=f"step-00000002: the disk is full, and the mirror {place} has this"):
            find_checkpoint(ALONE, store, lambda step: True, pytest.fail)
        (disk / "filler").unlink()
        found = find_checkpoint(ALONE, store, lambda step: True, pytest.fail)
        assert found is not None
        fresh = TrainState.fresh(session.config, 64, ALONE.device)
        found.restore(fresh)
        assert torch.equal(fresh.flat.vector, session.state.flat.vector)


def test_what_a_lost_lease_refuses_is_not_written_to_the_mirror_either(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start(tmp_path / "run", mirror=tmp_path / "place")
    session.save_and_settle()

    def refuse(run: Path) -> None:
        raise TandemError("another process is training here")

    monkeypatch.setattr(checkpoint_store, "check_lease", refuse)
    with pytest.raises(TandemError, match=r"another process is training here; .*continues after step 1"):
        session.save(last=True)
    assert list(checkpoint_directories(tmp_path / "place/checkpoints")) == [1]


@pytest.mark.parametrize("last", [False, True])
def test_a_best_one_is_mirrored_where_a_checkpoint_fails(last: bool, start: Start, tmp_path: Path) -> None:
    session = start(tmp_path / "run", mirror=tmp_path / "place")
    session.save_and_settle()
    # Or that copy might see what comes now.
    session.saves.finish_mirror(1)
    take_step(session.state)
    session.saves.save_if_best(session.state, Merits.of_bleu(10.0))
    # A file, which cannot be the directory that the checkpoint is written to.
    (session.store.last_directory / ".step-00000003.writing").touch()
    if last:
        with pytest.raises(TandemError, match="step-00000003: cannot save the checkpoint"):
            session.save(last=True)
    else:
        session.save_and_settle()
        session.saves.finish_mirror(3)
    assert list(checkpoint_directories(tmp_path / "place/best")) == [2]
    # The last one of a session goes straight there.
    assert list(checkpoint_directories(tmp_path / "place/checkpoints")) == ([1, 3] if last else [1])


class PatientMirror(Mirror):
    """Never has a copy, and remembers for how long it was waited for."""

    waited: float | None = None

    def finish(self, seconds: float) -> bool:
        self.waited = seconds
        return False


@pytest.mark.parametrize(("left", "waited"), [(None, LAST_COPY_SECONDS), (8.0, 4.0), (-1.0, 0.0)])
def test_the_last_copy_in_the_mirror_is_waited_for_as_long_as_there_is_time(
    left: float | None, waited: float, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.training.checkpoints.background_saves.time.monotonic", lambda: 100.0)
    session = start(tmp_path / "run")
    mirror = PatientMirror(tmp_path / "run", CheckpointConfig(), ALONE)
    session.saves._mirror = mirror
    take_step(session.state)
    session.saves.save(session.state, Forgetful(), last=True, stop_by=None if left is None else 100.0 + left)
    assert mirror.waited == waited
    assert session.heard.notices[-1].startswith("checkpoint.mirror has no copy of this step yet")


def test_nor_may_a_best_one_be_missing_at_the_end(start: Start, tmp_path: Path) -> None:
    session = start(tmp_path / "run")
    session.save_and_settle()
    (tmp_path / "run/best").touch()  # which cannot be a directory
    session.saves.save_if_best(session.state, Merits.of_bleu(10.0))
    with pytest.raises(
        TandemError,
        match=r"rank 0 on vm1: .*/run/best/step-00000001: cannot save the checkpoint .*; it continues after step 2$",
    ):
        session.save(last=True)
    assert session.steps == [1, 2]
    assert "step 1 is not kept as a best checkpoint" in session.heard.notices[0]


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[fuse_disk.FaultyDisk]:
    if reason := fuse_disk.why_not():
        pytest.skip(reason)
    with fuse_disk.faulty_disk(tmp_path / "fuse") as disk:
        yield disk


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("write", errno.EIO, "Input/output error"),
        ("fsync", errno.EIO, "Input/output error"),
        ("create", errno.EROFS, "Read-only file system"),
        ("write", errno.EDQUOT, "the disk is full"),
    ],
)
def test_a_disk_with_errors_costs_a_checkpoint_and_no_more(
    call: str, number: int, words: str, start: Start, failing_disk: fuse_disk.FaultyDisk
) -> None:
    session = start(failing_disk.place / "run")
    session.save_and_settle()
    failing_disk.fail(call, number)
    session.save_and_settle()
    failing_disk.mend()
    session.save_and_settle()
    assert session.heard.saved == [1, 3]
    (said,) = session.heard.notices
    assert said.startswith(f"rank 0 on vm1: {failing_disk.place}/run/checkpoints/step-00000002: cannot save")
    assert words in said
    assert "Errno" not in said
    assert session.steps == [1, 3]


def test_a_disk_that_cannot_be_read_is_not_believed(start: Start, failing_disk: fuse_disk.FaultyDisk) -> None:
    session = start(failing_disk.place / "run")
    session.save_and_settle()
    failing_disk.fail("read", errno.EIO)
    with pytest.raises(DamagedCheckpointError, match=r"step-00000001.*Input/output error"):
        read(session.store.last_directory / "step-00000001")
    with pytest.raises(TandemError, match="all 1 checkpoints are damaged"):
        find_checkpoint(ALONE, session.store, lambda step: True, pytest.fail)
    failing_disk.mend()
    assert read(session.store.last_directory / "step-00000001").step == 1


def test_an_older_one_that_all_hosts_can_resume_is_preferred(start: Start, tmp_path: Path) -> None:
    session = start(tmp_path / "run", keep_last=3)
    for _ in range(3):
        session.save_and_settle()
    said: list[str] = []
    found = find_checkpoint(ALONE, session.store, lambda step: step < 2, said.append)
    assert found is not None
    assert found.step == 1
    assert said == [
        "the checkpoint of step 3 cannot be resumed exactly: vm1 lacks the exchange's state of that step; "
        "the checkpoint of step 2 cannot be resumed exactly: vm1 lacks the exchange's state of that step; "
        "continuing from step 1: 2 steps are taken again"
    ]
    # They are kept, until the run has come so far again.
    names = {path.name for path in RunPaths(tmp_path / "run").checkpoints.iterdir()}
    assert names == {"step-00000001", "incomplete-step-00000002", "incomplete-step-00000003"}
    session.store.settle(2)
    assert not (session.store.last_directory / "incomplete-step-00000002").exists()
    assert (session.store.last_directory / "incomplete-step-00000003").exists()


def test_if_no_step_can_be_resumed_by_all_it_is_the_newest(start: Start, tmp_path: Path) -> None:
    session = start(tmp_path / "run")
    for _ in range(2):
        session.save_and_settle()
    found = find_checkpoint(ALONE, session.store, lambda step: False, pytest.fail)
    assert found is not None
    assert found.step == 2
