"""Which checkpoint a trained run is used with, and what is said of damaged ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tandem.config import CheckpointConfig, Config
from tandem.errors import TandemError
from tandem.layout import OPTIMIZER_FILE, UNAVERAGED_FILE
from tandem.training.checkpoints.average import average_run
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.merits import Merits
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.run_directory import Run
from tandem.training.train_state import TrainState
from tests.training.checkpoints.test_checkpoint import cut_short, flip_a_byte, lose_a_file, take_step


@pytest.fixture
def run(tiny_config: Callable[..., Config], tmp_path: Path) -> Run:
    return Run(tmp_path / "run", tiny_config(), tmp_path / "corpus", "", ("en", "de"))


@pytest.fixture
def store(run: Run) -> WritableCheckpointStore:
    """The checkpoints of a run that was saved at steps 1, 2 and 3, the second and the third among the best."""
    state = TrainState.fresh(run.config, 64, torch.device("cpu"))
    store = WritableCheckpointStore(run.directory, CheckpointConfig(keep_last=3, keep_best=2))
    for bleu in (5.0, 20.0, 10.0):
        take_step(state)
        store.saving(state)()
        store.saving_if_best(state, Merits.of_bleu(bleu))()
    return store


@pytest.mark.parametrize(
    ("choice", "damaged", "taken", "said"),
    [
        ("last", [], 3, None),
        ("last", [1], 3, None),
        ("last", [3], 2, "step 3 is damaged; step 2 is taken"),
        ("last", [2, 3], 1, "steps 2, 3 are damaged; step 1 is taken"),
        ("best", [], 2, None),
        ("best", [2], 3, "step 2 is damaged; step 3 is taken"),
    ],
)
def test_damaged_checkpoints_are_not_passed_over_in_silence(
    choice: str,
    damaged: list[int],
    taken: int,
    said: str | None,
    run: Run,
    store: WritableCheckpointStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = store.last_directory if choice == "last" else store.best_directory
    for step in damaged:
        flip_a_byte(directory / f"step-0000000{step}")
    with caplog.at_level(logging.WARNING):
        assert choose_checkpoint(run, choice).step == taken
    assert caplog.messages == ([] if said is None else [f"{run.directory}: {said}"])


@pytest.mark.parametrize("damage", [cut_short, lose_a_file])
@pytest.mark.parametrize("choice", ["last", "path"])
def test_whole_weights_beside_a_damaged_optimizer_are_used(
    choice: str,
    damage: Callable[[Path], None],
    run: Run,
    store: WritableCheckpointStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    newest = store.last_directory / "step-00000003"
    damage(newest)
    chosen = choose_checkpoint(run, str(newest) if choice == "path" else choice)
    assert chosen.model()
    assert average_run(run, last=2, best=None).state["averaged_steps"] == [2, 3]
    assert chosen.step == 3
    why = "damaged, its contents are not what was saved"
    if damage is lose_a_file:
        why = "cannot be read (No such file or directory)"
    said = f"{newest / OPTIMIZER_FILE}: {why}; the weights beside it are whole, and are used"
    assert caplog.messages == [said, said]
    # A training goes on from what is whole.
    assert next(store.whole({})).step == 2


def test_an_average_beside_damaged_weights_is_used_and_no_training_goes_on_from_it(
    tiny_config: Callable[..., Config], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path / "run", tiny_config("train.ema_decay=0.9"), tmp_path / "corpus", "", ("en", "de"))
    state = TrainState.fresh(run.config, 64, torch.device("cpu"))
    store = WritableCheckpointStore(run.directory, CheckpointConfig())
    take_step(state)
    store.saving(state)()
    newest = store.last_directory / "step-00000001"
    with (newest / UNAVERAGED_FILE).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    chosen = choose_checkpoint(run, "last")
    assert state.average is not None
    assert all(torch.equal(chosen.model()[name], each) for name, each in state.average.model.named_weights().items())
    why = f"{newest / UNAVERAGED_FILE}: damaged, its contents are not what was saved"
    assert caplog.messages == [f"{why}; the weights beside it are whole, and are used"]
    damaged: dict[int, str] = {}
    assert not list(store.whole(damaged))
    assert damaged == {1: why}


def test_checkpoints_that_are_all_damaged_are_not_said_to_be_missing(run: Run, store: WritableCheckpointStore) -> None:
    for step in (1, 2, 3):
        flip_a_byte(store.last_directory / f"step-0000000{step}")
    named = r"all 3 checkpoints are damaged \(.*step-00000003/model.*step-00000002/model.*step-00000001/model"
    with pytest.raises(TandemError, match=named):
        choose_checkpoint(run, "last")
    with pytest.raises(TandemError, match=named):
        average_run(run, last=None, best=None)
    with pytest.raises(
        TandemError,
        match=r"keeps 0 of the 2 checkpoints to average \(steps 1, 2, 3 are damaged\); ask for fewer, or restore",
    ):
        average_run(run, last=2, best=None)


def test_a_mean_says_which_checkpoints_are_not_in_it(
    run: Run, store: WritableCheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    flip_a_byte(store.last_directory / "step-00000002")
    assert average_run(run, last=2, best=None).state["averaged_steps"] == [1, 3]
    assert caplog.messages == [f"{run.directory}: step 2 is damaged; the others are averaged"]
