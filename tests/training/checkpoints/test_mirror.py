"""The mirror: a second place, whole or absent, told of once when it fails, and enough to go on from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tandem.cluster.world import World
from tandem.config import CheckpointConfig, Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import CONFIG_FILE, RUN_FILE
from tandem.monitor.records import Noticed
from tandem.storage import split_remote
from tandem.training.checkpoints.checkpoint import read
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.checkpoints.mirror_place import MirrorError, open_place
from tandem.training.train_state import TrainState
from tests.cluster.ranks import free_port
from tests.training.checkpoints.test_checkpoint import flip_a_byte, take_step
from tests.training.test_loop import Collector, train
from tests.training.test_resume import assert_same_end

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


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/mnt/disk", (None, "/mnt/disk")),
        ("./odd:name", (None, "./odd:name")),
        ("vm2:/runs/a", ("vm2", "/runs/a")),
        ("me@vm2.lan:runs", ("me@vm2.lan", "runs")),
    ],
)
def test_a_target_is_a_directory_or_a_host_and_a_path(target: str, parts: tuple[str | None, str]) -> None:
    assert split_remote(target) == parts


@pytest.mark.parametrize("target", ["", "-x", "-oProxyCommand=touch:x", "a b:x", "vm2:", "$(reboot):x", "me@-x:y"])
def test_any_other_target_is_refused_with_the_settings(target: str) -> None:
    with pytest.raises(TandemError, match=r"checkpoint.mirror: .*host:path"):
        Config.load("demo", [f"checkpoint.mirror='{target}'"])


@pytest.fixture
def run(tiny_config: Callable[..., Config], tmp_path: Path) -> Path:
    """The files of a run that has saved twice, and once among the best."""
    directory = tmp_path / "run"
    state = TrainState.fresh(tiny_config(), 64, ALONE.device)
    store = WritableCheckpointStore(directory, CheckpointConfig())
    for _ in range(2):
        take_step(state)
        store.save(state)
    store.saving_if_best(state, 10.0)()
    for name in (RUN_FILE, CONFIG_FILE):
        (directory / name).write_text(name)
    return directory


def copied(run: Path, target: str) -> Mirror:
    mirror = Mirror(run, CheckpointConfig(mirror=target), ALONE)
    mirror.copy()
    assert mirror.finish(300)
    return mirror


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_everything_of_a_run_is_copied_and_what_is_old_goes(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    assert copied(run, str(place)).pop_trouble() == ""
    assert contents(place) == contents(run)
    # A copy that was begun by a process that is no more, and a checkpoint that is no longer one of the best.
    (place / "checkpoints/.step-00000002.writing").mkdir()
    shutil.copytree(place / "best/step-00000002", place / "best/step-00000001")
    copied(run, str(place))
    assert {path.name for path in (place / "best").iterdir()} == {"step-00000002"}


def test_a_damaged_copy_is_made_again(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    copied(run, str(place))
    (place / "checkpoints/step-00000002/SHA256SUMS").write_text("")
    copied(run, str(place))
    assert contents(place) == contents(run)


def test_a_place_that_fails_is_told_once_and_once_when_it_is_back(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mirror = copied(run, str(tmp_path / "file/place"))
    assert f"checkpoint.mirror: {tmp_path}/file/place: " in (said := mirror.pop_trouble())
    assert "training goes on without a copy, which is tried again at every checkpoint" in said
    mirror.copy()
    assert mirror.finish(300)
    assert mirror.pop_trouble() == ""
    (tmp_path / "file").unlink()
    mirror.copy()
    assert mirror.finish(300)
    assert mirror.pop_trouble().endswith("has everything again")
    assert contents(tmp_path / "file/place") == contents(run)


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


@pytest.mark.slow
def test_another_host_by_rsync_and_ssh(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ssh_server(tmp_path) as shell:
        monkeypatch.setenv("RSYNC_RSH", shell)
        # A name that a careless shell would stumble over.
        place = tmp_path / "place 'a' $(touch broken) \"b\""
        target = f"127.0.0.1:{place}"
        assert copied(run, target).pop_trouble() == ""
        assert contents(place) == contents(run)
        shutil.copytree(place / "best/step-00000002", place / "best/step-00000001")
        mirror = copied(run, target)
        assert contents(place) == contents(run)
        whole = contents(run)
        shutil.rmtree(run / "checkpoints")
        assert mirror.steps(run / "checkpoints") == [1, 2]
        assert all(mirror.fetch(run / f"checkpoints/step-0000000{step}") for step in (1, 2))
        open_place(target).get(RUN_FILE, run / RUN_FILE)
        assert contents(run) == whole
        assert not list(Path.cwd().glob("broken"))
        assert open_place(f"127.0.0.1:{tmp_path}/nothing").names(".") == set()
    with pytest.raises(MirrorError, match=r"checkpoint.mirror: 127.0.0.1:.*refused"):
        open_place(target).names(".")


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
    train(mirrored.with_settings("train", max_steps=8), tiny_corpus, run)
    shutil.rmtree(run)
    _, heard = train(mirrored, tiny_corpus, run)
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
    # A mirror belongs to one run.
    with pytest.raises(TandemError, match=r"holds another run than .*undisturbed; name an empty place"):
        train(mirrored, tiny_corpus, tmp_path / "undisturbed")
