"""Rule 3: a checkpoint is whole or not there, and a damaged one is noticed and passed over."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.cluster.world import World
from tandem.config import CheckpointConfig, Config
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, SUMS_FILE
from tandem.storage import sha256_of
from tandem.training.checkpoints import checkpoint as checkpoints
from tandem.training.checkpoints.average import average
from tandem.training.checkpoints.checkpoint import (
    DIVERGED,
    INCOMPLETE,
    Checkpoint,
    DamagedCheckpointError,
    read,
    save,
)
from tandem.training.checkpoints.checkpoint_store import CheckpointStore, WritableCheckpointStore
from tandem.training.checkpoints.merits import Merits
from tandem.training.checkpoints.resume import find_checkpoint
from tandem.training.train_state import TrainState


class Crash(BaseException):
    """Stands for a process that ceases to exist."""


@pytest.fixture
def state(tiny_config: Callable[..., Config]) -> TrainState:
    """A state after one step, so that Adam has something to save."""
    state = TrainState.fresh(tiny_config(), 64, torch.device("cpu"))
    take_step(state)
    return state


ALONE = World(0, 1, torch.device("cpu"), host_names=("a",))


def find(store: CheckpointStore, notice: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint that a run of one process would continue from."""
    return find_checkpoint(ALONE, store, lambda step: True, notice)


def newest(run: Path, notice: Callable[[str], None]) -> Checkpoint | None:
    return find(WritableCheckpointStore(run, CheckpointConfig()), notice)


def sign_again(directory: Path) -> None:
    """Write the digests anew, as if the files had been made like this."""
    names = sorted(path.name for path in directory.iterdir() if path.name != SUMS_FILE)
    lines = (f"{sha256_of(directory / name)}  {name}\n" for name in names)
    (directory / SUMS_FILE).write_text("".join(lines))


def take_step(state: TrainState) -> None:
    torch.manual_seed(state.progress.step)
    for parameter in state.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    state.optimizer.step()
    state.progress.step += 1


def store_with_steps(run: Path, state: TrainState, steps: int, keep_last: int) -> WritableCheckpointStore:
    store = WritableCheckpointStore(run, CheckpointConfig(keep_last=keep_last))
    for _ in range(steps):
        take_step(state)
        store.saving(state)()
        store.settle(state.progress.step)
    return store


def test_a_state_comes_back_as_it_was(state: TrainState, tiny_config: Callable[..., Config], tmp_path: Path) -> None:
    state.progress.note_evaluation(Merits.of_bleu(12.5))
    save(tmp_path / "step", state)
    other = TrainState.fresh(tiny_config("train.seed=2"), 64, torch.device("cpu"))
    read(tmp_path / "step").restore(other)
    assert other.progress == state.progress
    for left, right in ((state, other), (take_and_return(state), take_and_return(other))):
        for file in (MODEL_FILE, OPTIMIZER_FILE):
            ours, theirs = left.tensors()[file], right.tensors()[file]
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def take_and_return(state: TrainState) -> TrainState:
    take_step(state)
    return state


def test_the_files_of_a_checkpoint(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step", state)
    assert {path.name for path in saved.directory.iterdir()} == {*(MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, SUMS_FILE)}
    facts = json.loads((saved.directory / STATE_FILE).read_text())
    assert facts["numbers"]["progress"]["step"] == 1
    assert facts["versions"].keys() == {"tandem", "torch"}
    assert {name: file["bytes"] for name, file in facts["files"].items()} == {
        name: (saved.directory / name).stat().st_size for name in (MODEL_FILE, OPTIMIZER_FILE)
    }
    assert saved.size == sum(path.stat().st_size for path in saved.directory.iterdir())


def flip_a_byte(directory: Path) -> None:
    data = bytearray((directory / MODEL_FILE).read_bytes())
    data[-1] ^= 1
    (directory / MODEL_FILE).write_bytes(data)


def cut_short(directory: Path) -> None:
    (directory / OPTIMIZER_FILE).write_bytes((directory / OPTIMIZER_FILE).read_bytes()[:-8])


def lose_a_file(directory: Path) -> None:
    (directory / OPTIMIZER_FILE).unlink()


def lose_the_state(directory: Path) -> None:
    (directory / STATE_FILE).unlink()


def empty_the_state(directory: Path) -> None:
    (directory / STATE_FILE).write_text("{}")


def change_a_digit_of_the_state(directory: Path) -> None:
    text = (directory / STATE_FILE).read_text()
    (directory / STATE_FILE).write_text(text.replace('"evaluations_without_gain": 0', '"evaluations_without_gain": 1'))


def change_the_format(directory: Path) -> None:
    text = (directory / STATE_FILE).read_text()
    (directory / STATE_FILE).write_text(text.replace('"format": 2', '"format": 3'))


def lose_the_digests(directory: Path) -> None:
    (directory / SUMS_FILE).unlink()


def change_a_letter_of_the_digests(directory: Path) -> None:
    text = (directory / SUMS_FILE).read_text()
    (directory / SUMS_FILE).write_text(text.replace(MODEL_FILE, "Model.safetensors"))


DAMAGES = (
    *(flip_a_byte, cut_short, lose_a_file, lose_the_state, empty_the_state, change_a_digit_of_the_state),
    *(change_the_format, lose_the_digests, change_a_letter_of_the_digests),
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    damage: Callable[[Path], None], state: TrainState, tmp_path: Path
) -> None:
    store = store_with_steps(tmp_path, state, 2, keep_last=2)
    damage(store.last_directory / "step-00000003")
    warnings: list[str] = []
    newest = find(store, warnings.append)
    assert newest is not None
    assert newest.step == 2
    assert len(warnings) == 1
    assert warnings[0].startswith("the checkpoint of step 3 is damaged (")
    assert "step-00000003" in warnings[0]
    assert warnings[0].endswith("; continuing from step 2: 1 step is taken again")
    # It is kept for whoever wants to look at it, under a name that no reader takes for a checkpoint.
    assert {path.name for path in store.last_directory.iterdir()} == {"step-00000002", "damaged-step-00000003"}


def test_a_flipped_bit_or_a_missing_end_is_noticed_wherever_it_is(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step", state)
    chance = random.Random(1)
    for file in sorted(saved.directory.iterdir()):
        whole = file.read_bytes()
        # Of every file the first bytes, the last ones and some between; `bench/damage.py` tries a thousand.
        places = {*range(16), *range(len(whole) - 16, len(whole)), *chance.sample(range(len(whole)), 50)}
        for place in sorted(places):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << chance.randrange(8)
            for content in (damaged, whole[:place]):
                file.write_bytes(content)
                with pytest.raises(DamagedCheckpointError):
                    read(saved.directory)
        file.write_bytes(whole)
    assert read(saved.directory).step == 1


def test_the_digests_are_those_that_every_system_can_check(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step", state)
    subprocess.run(["sha256sum", "--check", "--strict", SUMS_FILE], cwd=saved.directory, check=True)


def test_checkpoints_of_the_version_before_can_be_read(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step", state)
    text = (saved.directory / STATE_FILE).read_text()
    (saved.directory / STATE_FILE).write_text(text.replace('"format": 2', '"format": 1'))
    (saved.directory / SUMS_FILE).unlink()
    assert read(saved.directory).step == 1
    flip_a_byte(saved.directory)
    with pytest.raises(DamagedCheckpointError):
        read(saved.directory)


def test_a_state_that_names_files_elsewhere_is_damaged(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step", state)
    (tmp_path / "secret").write_text("x")
    facts = json.loads((saved.directory / STATE_FILE).read_text())
    facts["files"]["../secret"] = {"bytes": 1, "sha256": sha256_of(tmp_path / "secret")}
    (saved.directory / STATE_FILE).write_text(json.dumps(facts))
    sign_again(saved.directory)
    with pytest.raises(DamagedCheckpointError, match=r"it lists '../secret', which is not a file in it"):
        read(saved.directory)


def test_without_a_whole_checkpoint_a_run_does_not_begin_again_by_itself(state: TrainState, tmp_path: Path) -> None:
    store = store_with_steps(tmp_path, state, 2, keep_last=2)
    for directory in store.last_directory.iterdir():
        flip_a_byte(directory)
    remedy = f"restore one from a copy, or delete {store.last_directory} to begin again"
    with pytest.raises(TandemError, match=rf"all 2 checkpoints are damaged \(.*\); {remedy}"):
        find(store, pytest.fail)
    assert len(list(store.last_directory.glob("step-*"))) == 2


def test_going_on_after_damage_keeps_what_is_saved_from_then_on(state: TrainState, tmp_path: Path) -> None:
    store = store_with_steps(tmp_path, state, 3, keep_last=3)
    for step in (3, 4):
        flip_a_byte(store.last_directory / f"step-{step:08d}")
    newest = find(store, lambda warning: None)
    assert newest is not None
    newest.restore(state)
    again = WritableCheckpointStore(tmp_path, CheckpointConfig(keep_last=1))
    take_step(state)
    saved = again.saving(state)()
    again.settle(saved.step)
    assert saved.size > 0
    # Of several damaged ones the newest stays: they would fill the disk.
    assert sorted(path.name for path in store.last_directory.iterdir()) == ["damaged-step-00000004", "step-00000003"]


def test_one_of_each_kind_that_is_put_aside_stays_and_all_that_are_incomplete(
    state: TrainState, tmp_path: Path
) -> None:
    store = store_with_steps(tmp_path, state, 6, keep_last=6)
    store.go_back_to(5, (), INCOMPLETE)
    store.go_back_to(3, (5,), DIVERGED)
    store.go_back_to(2, (), DIVERGED)
    # A kill in the middle of a removal.
    (store.last_directory / ".diverged-step-00000004.removing").mkdir()
    WritableCheckpointStore(tmp_path, CheckpointConfig())
    assert sorted(path.name for path in store.last_directory.iterdir()) == [
        *("damaged-step-00000005", "diverged-step-00000003"),
        *("incomplete-step-00000006", "incomplete-step-00000007", "step-00000002"),
    ]


def test_going_back_forgets_the_best_of_the_steps_to_come(state: TrainState, tmp_path: Path) -> None:
    store = WritableCheckpointStore(tmp_path, CheckpointConfig(keep_best=3))
    for bleu in (10.0, 20.0, 40.0):
        store.saving_if_best(state, Merits.of_bleu(bleu))()
        take_step(state)
    store.go_back_to(2, ())
    assert [(checkpoint.step, checkpoint.bleu) for checkpoint in store.best()] == [(2, 20.0), (1, 10.0)]


def test_a_state_that_speaks_of_another_step_is_damaged(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step-00000001", state)
    facts = json.loads((saved.directory / STATE_FILE).read_text())
    facts["numbers"]["progress"]["step"] = 1800
    (saved.directory / STATE_FILE).write_text(json.dumps(facts))
    sign_again(saved.directory)
    with pytest.raises(DamagedCheckpointError, match="speaks of step 1800"):
        read(saved.directory)


def test_other_files_beside_the_checkpoints_are_left_alone(state: TrainState, tmp_path: Path) -> None:
    store = store_with_steps(tmp_path, state, 1, keep_last=1)
    for name in (".nfs01", "step-notes.txt", "step-00000001.bak"):
        (store.last_directory / name).touch()
    again = WritableCheckpointStore(tmp_path, CheckpointConfig())
    assert again.newest_step() == 2
    assert (store.last_directory / ".nfs01").exists()


def test_a_newer_format_is_refused_with_the_version_that_reads_it(state: TrainState, tmp_path: Path) -> None:
    saved = save(tmp_path / "step", state)
    facts = json.loads((saved.directory / STATE_FILE).read_text()) | {"format": 99}
    facts["versions"]["tandem"] = "9.9"
    (saved.directory / STATE_FILE).write_text(json.dumps(facts))
    sign_again(saved.directory)
    with pytest.raises(TandemError, match=r"format 99.*use tandem 9\.9") as refusal:
        read(saved.directory)
    # Not damage: falling back to an older one would throw work away.
    assert not isinstance(refusal.value, DamagedCheckpointError)


@pytest.mark.parametrize("overwriting", [False, True])
@pytest.mark.parametrize(
    ("owner", "moment"),
    [
        *((checkpoints, name) for name in ("save_file", "sha256_of", "fsync_tree", "fsync_path")),
        *((Path, "rename"), (shutil, "rmtree")),
    ],
)
def test_a_crash_at_any_moment_of_saving_loses_nothing(
    owner: Any, moment: str, overwriting: bool, state: TrainState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at the first, second, ... call of something that saving does."""
    real = getattr(owner, moment)
    for survived in range(20):
        run = tmp_path / str(survived)
        store = store_with_steps(run, state, 1, keep_last=5)
        kept = find(store, pytest.fail)
        assert kept is not None
        if not overwriting:
            take_step(state)
        calls = iter(range(survived + 1))

        def dying(*arguments: object, calls: object = calls, **keywords: object) -> object:
            if next(calls, None) is None:  # type: ignore[call-overload]
                raise Crash
            return real(*arguments, **keywords)

        monkeypatch.setattr(owner, moment, dying)
        try:
            store.saving(state)()
            crashed = False
        except Crash:
            crashed = True
        monkeypatch.setattr(owner, moment, real)
        # What the next process finds: a whole checkpoint, no leftovers, no complaint.
        found = newest(run, pytest.fail)
        assert found is not None
        assert found.step in (kept.step, state.progress.step)
        assert not list(store.last_directory.glob(".*"))
        if not crashed:
            return
    pytest.fail(f"saving never finished without a crash in {moment}")


def test_the_newest_are_kept_and_the_oldest_go(state: TrainState, tmp_path: Path) -> None:
    store = store_with_steps(tmp_path, state, 5, keep_last=2)
    assert [path.name for path in sorted(store.last_directory.iterdir())] == ["step-00000005", "step-00000006"]


def test_the_best_are_kept_by_bleu_without_the_optimizer(state: TrainState, tmp_path: Path) -> None:
    store = WritableCheckpointStore(tmp_path, CheckpointConfig(keep_best=2))
    kept = []
    for bleu in (10.0, 30.0, 20.0, 15.0, 20.0, 25.0):
        kept.append(store.saving_if_best(state, Merits.of_bleu(bleu))() is not None)
        take_step(state)
    # Of two equal ones the earlier stays: the later has shown nothing new.
    assert kept == [True, True, True, False, False, True]
    assert [checkpoint.bleu for checkpoint in store.best()] == [30.0, 25.0]
    assert {path.name for path in store.best()[0].directory.iterdir()} == {MODEL_FILE, STATE_FILE, SUMS_FILE}


def test_another_process_writes_nothing(state: TrainState, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    assert store.saving(state) is None
    assert store.saving_if_best(state, Merits.of_bleu(50.0)) is None
    assert list(tmp_path.iterdir()) == []


def test_the_mean_of_checkpoints(state: TrainState, tmp_path: Path) -> None:
    store = store_with_steps(tmp_path / "run", state, 3, keep_last=3)
    originals = store.newest(3)
    mean = average(originals, tmp_path / "mean")
    for name, weights in mean.model().items():
        expected = sum(original.model()[name].double() for original in originals) / 3
        torch.testing.assert_close(weights.double(), expected, rtol=1e-6, atol=1e-8)
    assert read(tmp_path / "mean").state["averaged_steps"] == [2, 3, 4]


def test_a_full_disk_is_one_clear_error(state: TrainState, full_disk: Path) -> None:
    with pytest.raises(TandemError, match=r"step: cannot save the checkpoint \(the disk is full\)"):
        save(full_disk / "step", state)
    assert list(full_disk.iterdir()) == []
