"""A trained model from a checkpoint of a run, chosen by name or path."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from tandem.errors import TandemError
from tandem.layout import STATE_FILE, checkpoint_directories, checkpoint_name
from tandem.model.translation_model import TranslationModel, build_model
from tandem.training.checkpoints.checkpoint import Checkpoint, read_weights
from tandem.training.checkpoints.checkpoint_store import (
    CheckpointStore,
    damaged_checkpoints,
    name_damaged,
    say_resume_damage,
)
from tandem.training.run_directory import Run

log = logging.getLogger(__name__)


def load_model(run: Run, checkpoint: Checkpoint, device: torch.device) -> TranslationModel:
    """The trained model, in evaluation mode."""
    model = build_model(run.config.model, run.tokenizer().vocab_size)
    try:
        model.load_weights(checkpoint.model())
    except (RuntimeError, TypeError) as error:
        message = "the weights of another model; name a checkpoint of this run"
        raise TandemError(f"{checkpoint.directory}: {message}") from error
    return model.to(device).eval()


def choose_checkpoint(run: Run, choice: str) -> Checkpoint:
    """`best`, `last`, `averaged`, or the path of a checkpoint directory; its weights are whole."""
    chosen = _chosen(run, choice)
    say_resume_damage(chosen)
    return chosen


def _chosen(run: Run, choice: str) -> Checkpoint:
    store = CheckpointStore(run.directory)
    if choice == "averaged":
        if not run.averaged.is_dir():
            raise TandemError(f"{run.directory}: nothing averaged yet; run `tandem average {run.directory}` first")
        return read_weights(run.averaged)
    if choice in ("best", "last"):
        return _best_or_newest(run, store, choice == "best")
    if not (Path(choice) / STATE_FILE).is_file():
        places = (store.last_directory, store.best_directory)
        there = [str(path) for place in places for path in checkpoint_directories(place).values()]
        raise TandemError(
            f"--checkpoint {choice}: neither best, last, averaged nor a checkpoint directory; "
            f"there is {', '.join(there) or 'none yet'}"
        )
    return read_weights(Path(choice))


def _best_or_newest(run: Run, store: CheckpointStore, best: bool) -> Checkpoint:
    """The best checkpoint, or the newest, with whole weights; a line in the log if damaged ones are passed over."""
    damaged: dict[int, str] = {}
    found = store.best(damaged)[:1] if best else []
    if damaged and not found:
        names = ", ".join(map(checkpoint_name, damaged))
        raise TandemError(f"{store.best_directory}: damaged ({names}); copy it again, or take --checkpoint last")
    # Before the first evaluation there is no best one yet: the newest will do.
    found = found or store.newest(1, damaged)
    if damaged and not found:
        raise damaged_checkpoints(store.last_directory, list(damaged.values()))
    if not found:
        raise TandemError(f"{run.directory}: no checkpoint yet; wait for the first one or train longer")
    if damaged:
        log.warning("%s: %s; step %s is taken", run.directory, name_damaged(damaged), f"{found[0].step:,}")
    return found[0]
