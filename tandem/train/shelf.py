"""The checkpoints a run keeps: the newest few to resume from, the best few by BLEU to use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tandem.config import CheckpointConfig
from tandem.train.checkpoint import (
    HIDDEN,
    STEP_PREFIX,
    Checkpoint,
    DamagedCheckpointError,
    read,
    remove,
    save,
    save_weights,
    step_name,
)
from tandem.train.state import TrainState


class Shelf:
    """The checkpoints of one run directory, for a process that only reads them."""

    def __init__(self, run: Path) -> None:
        self.last_directory = run / "checkpoints"
        self.best_directory = run / "best"

    def newest_whole(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that passes its digests; damaged ones are named and passed over."""
        for directory in reversed(_steps(self.last_directory)):
            try:
                return read(directory)
            except DamagedCheckpointError as error:
                warn(f"{error}; falling back to the one before it")
        return None

    def best(self) -> list[Checkpoint]:
        """The whole ones among the best checkpoints, best first; of equals the earlier one."""
        whole = []
        for directory in _steps(self.best_directory):
            with suppress(DamagedCheckpointError):
                whole.append(read(directory))
        return sorted(whole, key=lambda checkpoint: (-(checkpoint.bleu or 0.0), checkpoint.step))

    def newest(self, count: int) -> list[Checkpoint]:
        """Up to `count` newest checkpoints, newest first."""
        return [read(directory) for directory in reversed(_steps(self.last_directory)[-count:])]

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint, going by its name."""
        directories = _steps(self.last_directory)
        return int(directories[-1].name.removeprefix(STEP_PREFIX)) if directories else None

    def keep(self, state: TrainState) -> Checkpoint | None:
        """Another process writes."""

    def keep_if_best(self, state: TrainState, bleu: float) -> Checkpoint | None:
        """Another process writes."""


class WritableShelf(Shelf):
    """The checkpoints of one run directory, for the one process that writes them."""

    def __init__(self, run: Path, config: CheckpointConfig) -> None:
        super().__init__(run)
        self._config = config
        for directory in (self.last_directory, self.best_directory):
            for leftover in directory.glob(f"{HIDDEN}*"):
                shutil.rmtree(leftover)

    def keep(self, state: TrainState) -> Checkpoint:
        """Save a state to resume from, then let go of the oldest."""
        saved = save(self.last_directory / step_name(state.progress.step), state)
        for directory in _steps(self.last_directory)[: -self._config.keep_last]:
            remove(directory)
        return saved

    def keep_if_best(self, state: TrainState, bleu: float) -> Checkpoint | None:
        """Save the weights if they are among the best so far, then let go of the worst."""
        rivals = [checkpoint for checkpoint in self.best() if checkpoint.step != state.progress.step]
        if sum((rival.bleu or 0.0) >= bleu for rival in rivals) >= self._config.keep_best:
            return None
        saved = save_weights(self.best_directory / step_name(state.progress.step), state, bleu)
        for checkpoint in self.best()[self._config.keep_best :]:
            remove(checkpoint.directory)
        return saved


def _steps(directory: Path) -> list[Path]:
    """Checkpoint directories, oldest first: the names sort by step."""
    return sorted(directory.glob(f"{STEP_PREFIX}*"))
