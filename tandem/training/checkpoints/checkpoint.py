"""Checkpoints on disk: a directory for each step, either whole or not there at all.

step-00004000/model.safetensors      the weights
step-00004000/optimizer.safetensors  Adam's means (not in the best ones, which are for use, not for resuming)
step-00004000/state.json             step, progress, versions, and the sizes and digests of the other files
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import tandem
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, STATE_FILE, checkpoint_directories, checkpoint_step
from tandem.storage import fsync_path, fsync_tree, sha256_of
from tandem.training.train_state import TrainState

FORMAT = 1
# Directories with this prefix are being written or removed; no reader looks at them.
HIDDEN = "."


class DamagedCheckpointError(TandemError):
    """A checkpoint whose files are missing or are not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files have been checked against their digests."""

    directory: Path
    state: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["numbers"]["progress"]["step"])

    @property
    def bleu(self) -> float | None:
        """The dev BLEU it was kept for; none for a checkpoint that is not one of the best."""
        bleu = self.state.get("bleu")
        return None if bleu is None else float(bleu)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.directory.iterdir())

    def model(self) -> dict[str, Tensor]:
        return load_file(self.directory / MODEL_FILE)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of all files, by name."""
        return {name: load_file(self.directory / name) for name in self.state["files"]}

    def restore(self, state: TrainState) -> None:
        """Turn a fresh state into the saved one."""
        state.restore(self.tensors(), self.state["numbers"])


def save(directory: Path, state: TrainState) -> Checkpoint:
    """Save everything needed to resume."""
    return write(directory, state.tensors(), {"numbers": state.numbers()})


def write(directory: Path, files: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> Checkpoint:
    """Write a checkpoint that at every instant is either absent or whole, also across a power cut."""
    temporary = directory.with_name(f"{HIDDEN}{directory.name}.writing")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, tensors in files.items():
            save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, temporary / name)
            # safetensors writes for the owner alone; whoever may read the run may read its weights.
            (temporary / name).chmod(0o644)
        written = {
            name: {"bytes": (temporary / name).stat().st_size, "sha256": sha256_of(temporary / name)} for name in files
        }
        versions = {"tandem": tandem.__version__, "torch": torch.__version__}
        state = {"format": FORMAT, "versions": versions, **facts, "files": written}
        (temporary / STATE_FILE).write_text(json.dumps(state, indent=2) + "\n")
        fsync_tree(temporary)
        _put_in_place(temporary, directory)
        fsync_path(directory.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise TandemError(
            f"{directory}: cannot save the checkpoint ({error}); mend that and start the run again, "
            "it continues from the newest checkpoint"
        ) from error
    return Checkpoint(directory, state)


def _put_in_place(written: Path, directory: Path) -> None:
    """Rename what was written to its name; another process may put an emergency checkpoint there at the same time."""
    while True:
        remove(directory)
        try:
            written.rename(directory)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def read(directory: Path) -> Checkpoint:
    """Open a checkpoint and check every file against its digest."""
    try:
        state = json.loads((directory / STATE_FILE).read_text())
        if state["format"] != FORMAT:
            raise TandemError(
                f"{directory}: format {state['format']} is not the one this version reads ({FORMAT}); "
                f"use tandem {state['versions']['tandem']}"
            )
        for name, facts in state["files"].items():
            if sha256_of(directory / name) != facts["sha256"]:
                raise DamagedCheckpointError(f"{directory / name}: damaged, its contents are not what was saved")
        checkpoint = Checkpoint(directory, state)
        if checkpoint_step(directory) not in (None, checkpoint.step):
            raise DamagedCheckpointError(f"{directory / STATE_FILE}: damaged, it speaks of step {checkpoint.step}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(
            f"{directory}: not a whole checkpoint ({type(error).__name__}: {error})"
        ) from error
    return checkpoint


def remove(directory: Path) -> None:
    """Remove a checkpoint, so that a kill half-way leaves nothing under its name."""
    if not directory.exists():
        return
    doomed = directory.with_name(f"{HIDDEN}{directory.name}.removing")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    shutil.rmtree(doomed)


def remove_oldest(parent: Path, keep: int) -> None:
    """Remove all checkpoints in a directory but the newest so many."""
    for directory in list(checkpoint_directories(parent).values())[:-keep]:
        remove(directory)


def remove_leftovers(parent: Path) -> None:
    """Remove what a killed process was writing or removing."""
    for leftover in (*parent.glob(f"{HIDDEN}step-*.writing"), *parent.glob(f"{HIDDEN}step-*.removing")):
        shutil.rmtree(leftover)
