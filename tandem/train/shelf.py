"""The checkpoints a run keeps: the newest few to resume from, the best few by BLEU to use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tandem.config import CheckpointConfig
from tandem.errors import TandemError
from tandem.train.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    read,
    remove,
    remove_leftovers,
    save,
    save_weights,
    step_directories,
    step_name,
    step_of,
)
from tandem.train.run import RunPaths
from tandem.train.state import TrainState


class Shelf:
    """The checkpoints of one run directory, for a process that only reads them."""

    def __init__(self, run: Path) -> None:
        self.last_directory = RunPaths(run).checkpoints_directory
        self.best_directory = run / "best"

    def newest_whole(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that passes its digests; damaged ones are named and passed over."""
        directories = step_directories(self.last_directory)
        for directory in reversed(directories):
            try:
                return read(directory)
            except DamagedCheckpointError as error:
                warn(f"{error}; passing it over")
        if directories:
            raise TandemError(
                f"{self.last_directory}: all {len(directories)} checkpoints are damaged; restore one from a copy, "
                "or delete the directory to begin again"
            )
        return None

    def best(self) -> list[Checkpoint]:
        """The whole ones among the best checkpoints, best first; of equals the earlier one."""
        whole = _whole(step_directories(self.best_directory))
        return sorted(whole, key=lambda checkpoint: (-(checkpoint.bleu or 0.0), checkpoint.step))

    def newest(self, count: int) -> list[Checkpoint]:
        """Up to `count` newest checkpoints that are whole, newest first."""
        return list(islice(_whole(reversed(step_directories(self.last_directory))), count))

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint, going by its name."""
        directories = step_directories(self.last_directory)
        return step_of(directories[-1]) if directories else None

    def go_back_to(self, step: int) -> None:
        """Another process writes."""

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
            remove_leftovers(directory)

    def go_back_to(self, step: int) -> None:
        """Put away what is newer than the step a run continues from, or it would pass for the newest or the best.

        Newer ones to resume from can only be damaged; they are kept under another name for whoever may want them.
        """
        for directory in step_directories(self.last_directory):
            if step_of(directory) > step:
                aside = directory.with_name(f"damaged-{directory.name}")
                remove(aside)
                directory.rename(aside)
        for directory in step_directories(self.best_directory):
            if step_of(directory) > step:
                remove(directory)

    def keep(self, state: TrainState) -> Checkpoint:
        """Save a state to resume from, then let go of the oldest."""
        saved = save(self.last_directory / step_name(state.progress.step), state)
        for directory in step_directories(self.last_directory)[: -self._config.keep_last]:
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


def _whole(directories: Iterable[Path]) -> Iterator[Checkpoint]:
    for directory in directories:
        with suppress(DamagedCheckpointError):
            yield read(directory)
