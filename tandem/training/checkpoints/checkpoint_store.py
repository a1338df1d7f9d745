"""The checkpoints a run keeps: the newest few to resume from, the best few by BLEU to use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tandem.config import CheckpointConfig
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, RunPaths, checkpoint_directories, checkpoint_name
from tandem.training.checkpoints.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    read,
    remove,
    remove_leftovers,
    remove_oldest,
    save,
    write,
)
from tandem.training.train_state import TrainState


class CheckpointStore:
    """The checkpoints of one run directory, for a process that only reads them."""

    def __init__(self, run: Path) -> None:
        self.last_directory = RunPaths(run).checkpoints
        self.best_directory = RunPaths(run).best

    def newest_whole(self, warn: Callable[[str], None], before: int | None = None) -> Checkpoint | None:
        """The newest checkpoint (before a step) that passes its digests; damaged ones are named and passed over."""
        found = checkpoint_directories(self.last_directory)
        directories = {step: path for step, path in found.items() if before is None or step < before}
        for directory in reversed(directories.values()):
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
        whole = _whole(checkpoint_directories(self.best_directory).values())
        return sorted(whole, key=lambda checkpoint: (-(checkpoint.bleu or 0.0), checkpoint.step))

    def newest(self, count: int) -> list[Checkpoint]:
        """Up to `count` newest checkpoints that are whole, newest first."""
        return list(islice(_whole(reversed(checkpoint_directories(self.last_directory).values())), count))

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint, going by its name."""
        return max(checkpoint_directories(self.last_directory), default=None)

    def discard_after(self, step: int, why: str = "damaged") -> None:
        """Do nothing: only the first process writes."""

    def save(self, state: TrainState) -> Checkpoint | None:
        """Do nothing: only the first process writes."""

    def save_if_best(self, state: TrainState, bleu: float) -> Checkpoint | None:
        """Do nothing: only the first process writes."""


class WritableCheckpointStore(CheckpointStore):
    """The checkpoints of one run directory, for the one process that writes them."""

    def __init__(self, run: Path, config: CheckpointConfig) -> None:
        super().__init__(run)
        self._config = config
        for directory in (self.last_directory, self.best_directory):
            remove_leftovers(directory)

    def discard_after(self, step: int, why: str = "damaged") -> None:
        """Rename or remove what is newer than the step a run continues from: it would pass for the newest or the best.

        Newer ones to resume from are damaged, or of a run that has diverged; they are kept under another name.
        """
        for found, directory in checkpoint_directories(self.last_directory).items():
            if found > step:
                aside = directory.with_name(f"{why}-{directory.name}")
                remove(aside)
                directory.rename(aside)
        for found, directory in checkpoint_directories(self.best_directory).items():
            if found > step:
                remove(directory)

    def save(self, state: TrainState) -> Checkpoint:
        """Save a state to resume from, then remove the oldest."""
        saved = save(self.last_directory / checkpoint_name(state.progress.step), state)
        remove_oldest(self.last_directory, self._config.keep_last)
        return saved

    def save_if_best(self, state: TrainState, bleu: float) -> Checkpoint | None:
        """Save the weights if they are among the best so far, then remove the worst."""
        rivals = [checkpoint for checkpoint in self.best() if checkpoint.step != state.progress.step]
        if sum((rival.bleu or 0.0) >= bleu for rival in rivals) >= self._config.keep_best:
            return None
        files, facts = {MODEL_FILE: state.model.named_weights()}, {"numbers": state.numbers(), "bleu": bleu}
        saved = write(self.best_directory / checkpoint_name(state.progress.step), files, facts)
        for checkpoint in self.best()[self._config.keep_best :]:
            remove(checkpoint.directory)
        return saved


def _whole(directories: Iterable[Path]) -> Iterator[Checkpoint]:
    for directory in directories:
        with suppress(DamagedCheckpointError):
            yield read(directory)
