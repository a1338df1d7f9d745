"""The mirror: a second place, whole or absent, told of once when it fails, and enough to go on from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.cluster.exchange.strategy import ExchangePlan
from tandem.cluster.world import World
from tandem.config import CheckpointConfig, Config, ExchangeConfig
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import CONFIG_FILE, EXCHANGE_FILE, RUN_FILE, SUMS_FILE, RunPaths, checkpoint_directories
from tandem.monitor.records import Noticed
from tandem.storage import take_lock
from tandem.training.checkpoints import mirror_place
from tandem.training.checkpoints.checkpoint import DIVERGED, read
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.checkpoints.merits import Merits
from tandem.training.checkpoints.mirror import Mirror, check_apart, check_writable, fetched_run, restore_run
from tandem.training.checkpoints.mirror_place import MirrorDirectory, MirrorError, MirrorHost, MirrorPlace, open_place
from tandem.training.train_state import TrainState
from tests.cluster.ranks import free_port
from tests.disks import small_disk
from tests.training.checkpoints.test_checkpoint import (
    change_a_letter_of_the_digests,
    flip_a_byte,
    lose_the_digests,
    take_step,
)
from tests.training.checkpoints.test_exchange_state import Remembering
from tests.training.test_loop import Collector, train
from tests.training.test_resume import assert_same_end

pytestmark = pytest.mark.slow

ALONE = World(0, 1, torch.device("cpu"), host_names=("vm1",))


@contextmanager
def ssh_server(directory: Path) -> Iterator[str]:
    """An ssh server on the loopback; how rsync is told to reach it."""
    server = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    if os.geteuid() or server is None or not all(map(shutil.which, ("ssh", "ssh-keygen", "rsync"))):
        pytest.skip("needs root, sshd, ssh and rsync")
    keys = [directory / name for name in ("user_key", "host_key")]
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    port = free_port()
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": keys[1],
        "AuthorizedKeysFile": keys[0].with_suffix(".pub"),
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
    }
    (directory / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    command = [server, "-D", "-e", "-f", str(directory / "sshd_config")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Server listening" in process.stderr.readline()
        known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        try:
            yield f"ssh -F /dev/null -p {port} -i {keys[0]} {known}"
        finally:
            process.kill()


@pytest.fixture
def run(tiny_config: Callable[..., Config], tmp_path: Path) -> Path:
    """The files of a run that has saved twice, and once among the best."""
    directory = tmp_path / "run"
    state = TrainState.fresh(tiny_config(), 64, ALONE.device)
    store = WritableCheckpointStore(directory, CheckpointConfig())
    for _ in range(2):
        take_step(state)
        store.saving(state)()
    store.saving_if_best(state, Merits.of_bleu(10.0))()
    for name in (RUN_FILE, CONFIG_FILE):
        (directory / name).write_text(name)
    return directory


def mirror_of(run: Path, place: Path | str) -> Mirror:
    return Mirror(run, CheckpointConfig(mirror=str(place)), ALONE)


def copied(run: Path, target: Path | str) -> Mirror:
    mirror = mirror_of(run, target)
    mirror.copy()
    assert mirror.finish(300)
    return mirror


def mirrored(place: Path) -> dict[str, bytes]:
    """What a mirror holds of a run: the digests of the small files are its own."""
    return {name: content for name, content in contents(place).items() if name != SUMS_FILE}


def steps(directory: Path) -> list[int]:
    return list(checkpoint_directories(directory))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_everything_of_a_run_is_copied_and_what_is_old_goes(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    assert copied(run, str(place)).pop_trouble() == ""
    assert mirrored(place) == contents(run)
    # A copy that was begun by a process that is no more, and a checkpoint that is no longer one of the best.
    (place / "checkpoints/.step-00000002.writing").mkdir()
    shutil.copytree(place / "best/step-00000002", place / "best/step-00000001")
    copied(run, str(place))
    assert {path.name for path in (place / "best").iterdir()} == {"step-00000002"}


def test_another_host_leaves_the_runs_files_and_their_digests_alone(run: Path, tmp_path: Path) -> None:
    place, second = tmp_path / "place", tmp_path / "second"
    copied(run, place)
    before = contents(place)
    shutil.copytree(run / "checkpoints", RunPaths(second).host_state(1))
    other = World(1, 2, torch.device("cpu"), host_names=("vm1", "vm2"), hosts=((0,), (1,)))
    mirror = Mirror(second, CheckpointConfig(mirror=str(place)), other)
    mirror.copy()
    assert mirror.finish(300)
    assert {name: content for name, content in contents(place).items() if not name.startswith("hosts/")} == before


@pytest.mark.parametrize(("hosts", "kept"), [(((0,),), [2]), (((0,), (1,)), [1, 2])])
def test_a_mirror_keeps_what_the_run_does_and_one_more_for_a_host_that_is_late(
    hosts: tuple[tuple[int, ...], ...], kept: list[int], run: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    copied(run, place)
    shutil.rmtree(run / "checkpoints/step-00000001")
    world = World(0, len(hosts), torch.device("cpu"), host_names=("vm1", "vm2")[: len(hosts)], hosts=hosts)
    mirror = Mirror(run, CheckpointConfig(mirror=str(place), keep_last=1), world)
    mirror.copy()
    assert mirror.finish(300)
    assert steps(place / "checkpoints") == kept


def test_whoever_saves_in_the_stead_of_the_first_process_copies_the_checkpoints_when_nobody_else_does(
    run: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    kept = CheckpointConfig(mirror=str(place))
    beside = Mirror(run, kept, World(1, 2, torch.device("cpu"), host_names=("vm1",), hosts=((0, 1),)))
    beside.copy()
    assert beside.finish(300)
    assert not place.exists()
    beside.copy_checkpoints_too()
    copying = os.open(run, os.O_RDONLY)
    assert take_lock(copying)
    beside.copy()
    assert not beside.finish(0)
    assert not place.exists()
    os.close(copying)
    assert beside.finish(300)
    assert mirrored(place).keys() == {name for name in contents(run) if "/" in name}


class Ending(Future[None]):
    """A copy that ends as soon as somebody has heard that it has not yet."""

    def done(self) -> bool:
        done = super().done()
        if not done:
            self.set_result(None)
        return done


def test_a_copy_that_ends_at_this_moment_is_not_taken_for_one_that_will_see_what_is_new(
    run: Path, tmp_path: Path
) -> None:
    mirror = mirror_of(run, tmp_path / "place")
    ending = Ending()
    ending.set_running_or_notify_cancel()
    mirror._copies.append(ending)
    mirror.copy()
    assert mirror.finish(300)
    assert mirrored(tmp_path / "place") == contents(run)


def test_a_damaged_copy_is_made_again(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    copied(run, str(place))
    (place / "checkpoints/step-00000002/SHA256SUMS").write_text("")
    copied(run, str(place))
    assert mirrored(place) == contents(run)


def test_a_place_that_fails_is_told_once_and_once_when_it_is_back(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mirror = mirror_of(run, tmp_path / "file/place")
    mirror.copy()
    assert not mirror.finish(300)
    said = f"checkpoint.mirror: {tmp_path}/file/place: Not a directory; training goes on without a copy, "
    assert mirror.pop_trouble() == f"{said}which is tried again at every checkpoint"
    mirror.copy()
    # The end of a run says that there is no copy, however long ago it was told that the place fails.
    assert not mirror.finish(300)
    assert mirror.pop_trouble() == ""
    (tmp_path / "file").unlink()
    mirror.copy()
    assert mirror.finish(300)
    assert mirror.pop_trouble().endswith("has everything again")
    assert mirrored(tmp_path / "file/place") == contents(run)


def test_what_fails_in_a_mirror_is_named_from_there(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "checkpoints").touch()
    mirror = mirror_of(run, place)
    mirror.copy()
    assert not mirror.finish(300)
    assert mirror.pop_trouble().startswith(f"checkpoint.mirror: {place}: checkpoints: File exists; ")


def test_a_disk_here_without_room_for_what_the_mirror_has_is_named(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    copied(run, place)
    with small_disk(tmp_path / "disk", "64k") as disk:
        best = disk / "best/step-00000002"
        with pytest.raises(MirrorError, match=f"^checkpoint.mirror: {place}: cannot be copied to {best}, where the d"):
            open_place(str(place)).get("best/step-00000002", best)
        assert not list((disk / "best").iterdir())


def test_a_checkpoint_that_is_lost_or_damaged_here_comes_from_the_mirror(run: Path, tmp_path: Path) -> None:
    mirror = copied(run, str(tmp_path / "place"))
    store = WritableCheckpointStore(run, CheckpointConfig(), mirror)
    newest = store.last_directory / "step-00000002"
    flip_a_byte(newest)
    damaged: dict[int, str] = {}
    assert next(store.whole(damaged)).step == 2
    assert damaged == {}
    assert read(newest).step == 2
    assert (store.last_directory / "damaged-step-00000002").is_dir()
    shutil.rmtree(store.last_directory)
    assert [checkpoint.step for checkpoint in store.whole(damaged)] == [2, 1]


def test_damage_in_the_mirror_is_noticed(run: Path, tmp_path: Path) -> None:
    mirror = copied(run, str(tmp_path / "place"))
    shutil.rmtree(run / "checkpoints")
    flip_a_byte(tmp_path / "place/checkpoints/step-00000002")
    damaged: dict[int, str] = {}
    store = WritableCheckpointStore(run, CheckpointConfig(), mirror)
    assert [checkpoint.step for checkpoint in store.whole(damaged)] == [1]
    assert list(damaged) == [2]


@pytest.mark.parametrize("sessions", [1, 2])
def test_a_line_that_the_run_has_gone_back_from_leaves_the_mirror(sessions: int, run: Path, tmp_path: Path) -> None:
    """Also if the session that went back ends before its next copy."""
    place = tmp_path / "place"
    mirror = copied(run, place)
    store = WritableCheckpointStore(run, CheckpointConfig(), mirror)
    store.go_back_to(1, (), DIVERGED)
    assert steps(place / "checkpoints") == [1, 2]
    if sessions == 2:
        mirror = mirror_of(run, place)
        store = WritableCheckpointStore(run, CheckpointConfig(), mirror)
    assert [checkpoint.step for checkpoint in store.whole({})] == [1]
    assert not mirror.fetch(store.last_directory / "step-00000002")
    mirror.copy()
    assert mirror.finish(300)
    assert steps(place / "checkpoints") == [1]
    assert steps(place / "best") == []
    # Taken again, the step is like any other.
    (store.last_directory / "diverged-step-00000002").rename(store.last_directory / "step-00000002")
    copied(run, place)
    shutil.rmtree(store.last_directory)
    assert [checkpoint.step for checkpoint in store.whole({})] == [2, 1]


def test_what_a_host_keeps_of_such_a_line_leaves_the_mirror_too(
    run: Path, tiny_config: Callable[..., Config], tmp_path: Path
) -> None:
    mirror = mirror_of(run, tmp_path / "place")
    exchange_state = ExchangeState(run, ALONE, ExchangePlan("int4"), ExchangeConfig(), 2, mirror)
    state = TrainState.fresh(tiny_config(), 64, ALONE.device)
    for step in (1, 2):
        exchange_state.write(step, {EXCHANGE_FILE: {"number": torch.tensor(float(step))}})
    mirror.copy()
    assert mirror.finish(300)
    state.progress.step = 1
    exchange_state.restore(state, Remembering())
    mirror.copy()
    assert mirror.finish(300)
    assert steps(RunPaths(tmp_path / "place").host_state(0)) == [1]


def test_a_newer_copy_in_the_mirror_is_preferred_to_an_old_one_here(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = copied(run, tmp_path / "place")
    shutil.rmtree(run / "checkpoints/step-00000002")
    store = WritableCheckpointStore(run, CheckpointConfig(), mirror)
    assert next(store.whole({})).step == 2
    # One that cannot be reached is no reason not to go on with what is here.
    monkeypatch.setattr(MirrorDirectory, "listing", unreachable)
    assert next(store.whole({})).step == 2
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(MirrorError, match="gone"):
        next(store.whole({}))


def unreachable(place: MirrorPlace, directories: Sequence[str]) -> dict[str, dict[str, bytes]]:
    raise place.error("gone")


@pytest.mark.parametrize("damage", [flip_a_byte, lose_the_digests, change_a_letter_of_the_digests])
def test_damage_here_is_not_copied_over_a_whole_one(damage: Callable[[Path], None], run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    whole = contents(run / "checkpoints/step-00000002")
    copied(run, place)
    damage(run / "checkpoints/step-00000002")
    # So that there is a reason to copy it again.
    (place / "checkpoints/step-00000002/SHA256SUMS").write_text("x")
    mirror = copied(run, place)
    said = mirror.pop_trouble()
    assert "/checkpoints/step-00000002" in said
    assert said.endswith("it is not copied to the mirror, where an older copy of it stays")
    mirror.copy()
    assert mirror.finish(300)
    assert mirror.pop_trouble() == ""
    assert contents(place / "checkpoints/step-00000002") == whole | {SUMS_FILE: b"x"}


def test_a_copy_goes_only_when_the_next_one_has_its_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    copied(run, place)
    copy = place / "checkpoints/step-00000002"
    (copy / SUMS_FILE).write_text("")
    seen, real = [], shutil.rmtree

    def watched(path: Path, **options: Any) -> None:
        real(path, **options)
        seen.append(copy.is_dir())

    monkeypatch.setattr(shutil, "rmtree", watched)
    copied(run, place)
    assert all(seen)
    assert mirrored(place) == contents(run)


def restored(place: Path, directory: Path) -> None:
    directory.mkdir()
    with fetched_run(str(place)) as fetched:
        restore_run(str(place), fetched, directory)


@pytest.mark.parametrize("damage", [lambda file: file.write_text("x"), Path.unlink])
def test_damage_of_the_small_files_in_the_mirror_is_noticed(
    damage: Callable[[Path], object], run: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    copied(run, place)
    subprocess.run(["sha256sum", "--check", "--strict", SUMS_FILE], cwd=place, check=True)
    restored(place, tmp_path / "again")
    assert (tmp_path / "again" / CONFIG_FILE).read_text() == CONFIG_FILE
    damage(place / CONFIG_FILE)
    with pytest.raises(MirrorError, match=r"config.yaml: damaged or missing there"), fetched_run(str(place)):
        pass


@pytest.mark.parametrize("failing", [CONFIG_FILE, "settled.json"])
def test_a_restore_that_breaks_off_leaves_nothing_that_counts_as_a_run(failing: str, run: Path, tmp_path: Path) -> None:
    place, again = tmp_path / "place", tmp_path / "again"
    (run / failing).write_text(failing)
    copied(run, place)
    # A file cannot be written where a directory has its name.
    (again / failing).mkdir(parents=True)
    with fetched_run(str(place)) as fetched, pytest.raises(IsADirectoryError):
        restore_run(str(place), fetched, again)
    assert not (again / RUN_FILE).exists()


@pytest.mark.parametrize("renames", range(8))
def test_a_copy_of_changed_files_that_breaks_off_leaves_a_run_to_restore(
    renames: int, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, real, left = tmp_path / "place", mirror_place._give_name, iter(range(renames))
    copied(run, place)
    (run / CONFIG_FILE).write_text("changed")
    (run / "settled.json").write_text("new")

    def rename(*paths: Path) -> None:
        if next(left, None) is None:
            raise OSError("killed")
        real(*paths)

    monkeypatch.setattr(mirror_place, "_give_name", rename)
    mirror = Mirror(run, CheckpointConfig(mirror=str(place)), ALONE)
    mirror.copy()
    mirror.finish(300)
    monkeypatch.undo()
    restored(place, tmp_path / "again")
    assert (tmp_path / "again" / CONFIG_FILE).read_text() in (CONFIG_FILE, "changed")


@pytest.mark.parametrize("below", [".", "mirror"])
def test_a_mirror_inside_of_the_run_is_refused(below: str, tmp_path: Path) -> None:
    with pytest.raises(TandemError, match=r"checkpoint.mirror: .* lies in the run, .*; name a place on another disk"):
        check_apart(str(tmp_path / "run" / below), tmp_path / "run")
    check_apart(str(tmp_path / "run-mirror"), tmp_path / "run")
    check_apart(f"vm2:{tmp_path}/run", tmp_path / "run")


def test_a_place_that_cannot_be_written_to_is_refused_before_a_run_begins(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config], tmp_path: Path
) -> None:
    with pytest.raises(TandemError, match=r"^checkpoint.mirror: /proc/nope: No such .*; name a place that can be writ"):
        train(tiny_config("checkpoint.mirror=/proc/nope"), tiny_corpus, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("host", ["", "vm2:"])
def test_a_place_is_tried_out_without_a_trace(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSYNC_RSH", str(CountingShell(tmp_path).command))
    place = tmp_path / "new/place"
    check_writable(f"{host}{place}")
    assert not list((tmp_path / "new").rglob("*.*"))
    (tmp_path / "file").touch()
    with pytest.raises(MirrorError, match=r"Not a directory.*; name a place that can be written to"):
        check_writable(f"{host}{tmp_path}/file/below")
    with small_disk(tmp_path / "disk", "4k") as disk:
        (disk / "filler").write_bytes(bytes(4096))
        with pytest.raises(MirrorError, match=r"(the disk is full|No space left on device|I/O error); name"):
            check_writable(f"{host}{disk}")


class CountingShell:
    """Stands for ssh, without a network: runs what it is told to run there, and counts how often."""

    def __init__(self, directory: Path) -> None:
        self._log, self.command = directory / "logins", directory / "shell"
        self.command.write_text(f'#!/bin/sh\necho >> {self._log}\nfor last do :; done\nexec sh -c "$last"\n')
        self.command.chmod(0o755)

    def pop_logins(self) -> int:
        logins = len(self._log.read_text().splitlines())
        self._log.unlink()
        return logins


def test_a_save_in_which_nothing_changed_is_one_login(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    shell = CountingShell(tmp_path / "bin")
    monkeypatch.setenv("RSYNC_RSH", str(shell.command))
    monkeypatch.setattr(MirrorHost, "_rsync", copy_like_rsync)
    place = tmp_path / "place"
    copied(run, f"vm2:{place}")
    assert mirrored(place) == contents(run)
    shell.pop_logins()
    copied(run, f"vm2:{place}")
    assert shell.pop_logins() == 1
    (place / "checkpoints/step-00000002/SHA256SUMS").write_text("")
    (place / "checkpoints/.step-00000001.writing").mkdir()
    copied(run, f"vm2:{place}")
    assert mirrored(place) == contents(run)
    assert sorted(path.name for path in (place / "checkpoints").iterdir()) == ["step-00000001", "step-00000002"]


def copy_like_rsync(place: MirrorHost, source: str, destination: str) -> None:
    shutil.copytree(source, destination.partition(":")[2], dirs_exist_ok=True)


@pytest.mark.slow
def test_another_host_by_rsync_and_ssh(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ssh_server(tmp_path) as shell:
        monkeypatch.setenv("RSYNC_RSH", shell)
        # A name that a careless shell would stumble over.
        place = tmp_path / "place 'a' $(touch broken) \"b\""
        target = f"127.0.0.1:{place}"
        assert copied(run, target).pop_trouble() == ""
        assert mirrored(place) == contents(run)
        shutil.copytree(place / "best/step-00000002", place / "best/step-00000001")
        mirror = copied(run, target)
        assert mirrored(place) == contents(run)
        whole = contents(run)
        shutil.rmtree(run / "checkpoints")
        assert mirror.steps(run / "checkpoints") == [1, 2]
        assert all(mirror.fetch(run / f"checkpoints/step-0000000{step}") for step in (1, 2))
        open_place(target).get(RUN_FILE, run / RUN_FILE)
        assert contents(run) == whole
        with fetched_run(target) as fetched:
            assert contents(fetched) == {name: whole[name] for name in (RUN_FILE, CONFIG_FILE)}
        assert not list(Path.cwd().glob("broken"))
        assert open_place(f"127.0.0.1:{tmp_path}/nothing").names() == set()
    with pytest.raises(MirrorError, match=r"checkpoint.mirror: 127.0.0.1:.*refused"):
        open_place(target).names()


def said(collector: Collector) -> list[str]:
    return [record.message for record in collector.records if isinstance(record, Noticed)]


@pytest.mark.slow
def test_a_run_whose_machine_is_lost_goes_on_from_the_mirror_with_the_same_bits(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config], tmp_path: Path
) -> None:
    run, place = tmp_path / "run", tmp_path / "place"
    # Neither the rates nor the evaluations depend on the last step.
    settings = ("schedule.kind=inverse_sqrt", "evaluation.every_steps=4")
    train(tiny_config(*settings), tiny_corpus, tmp_path / "undisturbed")
    mirrored = tiny_config(*settings, f"checkpoint.mirror={place}")
    _, heard = train(mirrored.with_settings("train", max_steps=8), tiny_corpus, run)
    assert said(heard)[0] == f"the mirror {place} holds no run: a new run begins"
    shutil.rmtree(run)
    _, heard = train(mirrored, tiny_corpus, run)
    assert f"the run was not here, and comes from its mirror, {place}" in said(heard)
    assert "continuing after step 8" in said(heard)
    assert_same_end(tmp_path / "undisturbed", run)
    # Once more, with the newest copy damaged: the one before it, and the same end.
    flip_a_byte(place / "checkpoints/step-00000012")
    shutil.rmtree(run)
    _, heard = train(mirrored, tiny_corpus, run)
    assert said(heard)[0].startswith("the checkpoint of step 12 is damaged")
    assert said(heard)[0].endswith("continuing from step 8: 4 steps are taken again")
    assert_same_end(tmp_path / "undisturbed", run)
    assert contents(place / "checkpoints/step-00000012") == contents(run / "checkpoints/step-00000012")
    assert contents(place / "best") == contents(run / "best")
    # Settings that the run there cannot go on with: nothing of it comes here, and it is said which place is meant.
    for setting, refusal in (
        ("optimizer.clip_norm=0.5", r"other settings \(optimizer.clip_norm was 1.0, now 0.5\); give the same ones .*"),
        ("model.d_ff=128", r"another model \(model.d_ff was 64, now 128\); "),
    ):
        another = tiny_config(*settings, f"checkpoint.mirror={place}", setting)
        told = rf"^checkpoint.mirror: {place}: the run there was started with {refusal}name an empty place to begin a"
        with pytest.raises(TandemError, match=told):
            train(another, tiny_corpus, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    # A mirror belongs to one run.
    undisturbed = tmp_path / "undisturbed"
    with pytest.raises(
        TandemError, match=rf"holds another run than {undisturbed}; name an empty place, or remove {undisturbed} to"
    ):
        train(mirrored, tiny_corpus, tmp_path / "undisturbed")


def test_a_restore_that_broke_off_before_the_run_was_known_is_made_again(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config], tmp_path: Path
) -> None:
    run, mirrored = tmp_path / "run", tiny_config(f"checkpoint.mirror={tmp_path / 'place'}", "train.max_steps=4")
    train(mirrored, tiny_corpus, run)
    (run / RUN_FILE).unlink()
    assert (run / "settled.json").is_file()
    _, heard = train(mirrored, tiny_corpus, run)
    assert f"the run was not here, and comes from its mirror, {tmp_path / 'place'}" in said(heard)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (CONFIG_FILE, "config.yaml: damaged or missing there"),
        # Of a mirror without digests, as older versions have written it.
        (
            SUMS_FILE,
            r"the run there cannot be read; name an empty place to begin a new run: .*/run.json: damaged [^;]*$",
        ),
    ],
)
def test_a_run_that_cannot_be_restored_leaves_nothing_here(
    damaged: str, why: str, run: Path, tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    copied(run, place)
    (place / damaged).unlink()
    (tmp_path / "new").mkdir()
    with pytest.raises(TandemError, match=f"^checkpoint.mirror: {place}: {why}"):
        train(tiny_config(f"checkpoint.mirror={place}"), tiny_corpus, tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
