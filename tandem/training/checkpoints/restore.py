"""A trained model from a checkpoint of a run, chosen by name or path."""

from __future__ import annotations

from pathlib import Path

import torch

from tandem.errors import TandemError
from tandem.layout import STATE_FILE, checkpoint_directories
from tandem.model.translation_model import TranslationModel, build_model
from tandem.training.checkpoints.checkpoint import Checkpoint, read
from tandem.training.checkpoints.checkpoint_store import CheckpointStore
from tandem.training.run_directory import Run


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
    """`best`, `last`, `averaged`, or the path of a checkpoint directory."""
    store = CheckpointStore(run.directory)
    if choice == "averaged":
        if not run.averaged.is_dir():
            raise TandemError(f"{run.directory}: nothing averaged yet; run `tandem average {run.directory}` first")
        return read(run.averaged)
    if choice in ("best", "last"):
        kept = checkpoint_directories(store.best_directory).values()
        found = store.best()[:1] if choice == "best" else []
        # A training at work may have removed some meanwhile.
        damaged = [path.name for path in kept if path.exists()]
        if choice == "best" and not found and damaged:
            raise TandemError(
                f"{store.best_directory}: damaged ({', '.join(damaged)}); copy it again, or take --checkpoint last"
            )
        # Before the first evaluation there is no best one yet: the newest will do.
        found = found or store.newest(1)
        if not found:
            raise TandemError(f"{run.directory}: no checkpoint yet; wait for the first one or train longer")
        return found[0]
    if not (Path(choice) / STATE_FILE).is_file():
        places = (store.last_directory, store.best_directory)
        there = [str(path) for place in places for path in checkpoint_directories(place).values()]
        raise TandemError(
            f"--checkpoint {choice}: neither best, last, averaged nor a checkpoint directory; "
            f"there is {', '.join(there) or 'none yet'}"
        )
    return read(Path(choice))
