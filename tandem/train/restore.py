"""Which checkpoint of a run to use, and the model that it makes."""

from __future__ import annotations

from pathlib import Path

import torch

from tandem.config import ModelConfig
from tandem.errors import TandemError
from tandem.model.transformer import Transformer
from tandem.train.checkpoint import Checkpoint, read
from tandem.train.run import STATE_FILE, Run
from tandem.train.shelf import Shelf


def load_model(checkpoint: Checkpoint, config: ModelConfig, vocab_size: int, device: torch.device) -> Transformer:
    """The trained model, ready to be used."""
    model = Transformer(config, vocab_size)
    try:
        model.load_state_dict(checkpoint.model())
    except RuntimeError as error:
        raise TandemError(
            f"{checkpoint.directory}: the weights of another model; name a checkpoint of this run"
        ) from error
    return model.to(device).eval()


def choose_checkpoint(run: Run, choice: str) -> Checkpoint:
    """`best`, `last`, `averaged`, or the path of a checkpoint directory."""
    shelf = Shelf(run.directory)
    if choice == "averaged":
        if not run.averaged_directory.is_dir():
            raise TandemError(f"{run.directory}: nothing averaged yet; run `tandem average {run.directory}` first")
        return read(run.averaged_directory)
    if choice in ("best", "last"):
        found = shelf.best()[:1] if choice == "best" else []
        # Before the first evaluation there is no best one yet: the newest will do.
        found = found or shelf.newest(1)
        if not found:
            raise TandemError(f"{run.directory}: no checkpoint yet; wait for the first one or train longer")
        return found[0]
    if not (Path(choice) / STATE_FILE).is_file():
        raise TandemError(f"--checkpoint {choice}: neither best, last, averaged nor a checkpoint directory")
    return read(Path(choice))
