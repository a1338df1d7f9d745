"""The checkpoints a run keeps: the newest few to resume from, the best few by a metric to use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from tandem.config import CheckpointConfig
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, RunPaths, checkpoint_directories, checkpoint_name, checkpoint_step
from tandem.metrics import BY_DEV_BLEU
from tandem.storage import read_json, write_json
from tandem.training.checkpoints.checkpoint import (
    DAMAGED,
    INCOMPLETE,
    Checkpoint,
    DamagedCheckpointError,
    put_aside,
    read,
    read_weights,
    remove,
    remove_leftovers,
    remove_oldest,
    save,
    write,
)
from tandem.training.checkpoints.merits import Merits
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.checkpoints.mirror_place import MirrorError
from tandem.training.run_lease import check_lease, has_lost_lease
from tandem.training.train_state import TrainState

log = logging.getLogger(__name__)
T = TypeVar("T")
Write = Callable[[], T]
"""Writes what was copied when it was made; called by a thread while training goes on."""


def snapshot(files: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """A copy of tensors in the host's memory, which training does not change any more."""
    return {
        file: {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        for file, tensors in files.items()
    }


class CheckpointStore:
    """The checkpoints of one run directory, for a process that only reads them."""

    def __init__(self, run: Path, mirror: Mirror | None = None) -> None:
        self._mirror = mirror
        self._settled_file = RunPaths(run).settled_file
        self.last_directory = RunPaths(run).checkpoints
        self.best_directory = RunPaths(run).best

    def whole(self, damaged: dict[int, str], before: int | None = None) -> Iterator[Checkpoint]:
        """The checkpoints (before a step) that pass their digests, newest first; why others are damaged, by step.

        Those that only the mirror has, or has whole, are fetched when their turn comes.
        """
        for step in sorted({*checkpoint_directories(self.last_directory), *self._mirrored()}, reverse=True):
            if before is not None and step >= before:
                continue
            directory = self.last_directory / checkpoint_name(step)
            try:
                yield read(directory)
            except DamagedCheckpointError as error:
                if self._mirror is not None and self._mirror.fetch(directory):
                    yield read(directory)
                else:
                    damaged[step] = str(error)

    def _mirrored(self) -> list[int]:
        try:
            return [] if self._mirror is None else self._mirror.steps(self.last_directory)
        except MirrorError:
            # A run that is here goes on without; the first copy tells.
            if checkpoint_directories(self.last_directory):
                return []
            raise

    def best(self, damaged: dict[int, str] | None = None) -> list[Checkpoint]:
        """Those of the best whose weights are whole, best first, of equals the earlier one; why others are damaged.

        A run may have been continued with another `checkpoint.best_by`: the newest checkpoint says what counts.
        """
        usable = list(_usable(checkpoint_directories(self.best_directory).items(), damaged))
        criterion = usable[-1].merits.best_by if usable else BY_DEV_BLEU
        # Which keeps equal ones in their order, oldest first.
        return sorted(usable, key=lambda checkpoint: checkpoint.merits.rank(criterion), reverse=True)

    def newest(self, count: int, damaged: dict[int, str] | None = None) -> list[Checkpoint]:
        """Up to `count` newest checkpoints whose weights are whole, newest first; why those passed over are damaged."""
        return list(islice(_usable(reversed(checkpoint_directories(self.last_directory).items()), damaged), count))

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint, going by its name."""
        return max(checkpoint_directories(self.last_directory), default=None)

    def is_settled(self, step: int) -> bool:
        """Whether all hosts had their parts of a checkpoint once; runs of older versions do not tell."""
        try:
            return step <= int(read_json(self._settled_file)["step"])
        except (OSError, ValueError, KeyError, TypeError):
            return True

    def go_back_to(self, step: int, damaged: Iterable[int], otherwise: str = INCOMPLETE) -> None:
        """Do nothing: only the first process writes."""

    def saving(self, state: TrainState) -> Write[Checkpoint] | None:
        """Nothing to write: only the first process does."""

    def writes_elsewhere(self, state: TrainState) -> dict[Path, Callable[[Path], object]]:
        """Nothing to write: only the first process does."""
        return {}

    def saving_if_best(self, state: TrainState, merits: Merits) -> Write[Checkpoint | None] | None:
        """Nothing to write: only the first process does."""

    def settle(self, step: int) -> None:
        """Do nothing: only the first process writes."""

    def withdraw(self, step: int) -> None:
        """Do nothing: only the first process writes."""


class WritableCheckpointStore(CheckpointStore):
    """The checkpoints of one run directory, for the one process that writes them."""

    def __init__(self, run: Path, config: CheckpointConfig, mirror: Mirror | None = None) -> None:
        super().__init__(run, mirror)
        self._run, self._config = run, config
        for directory in (self.last_directory, self.best_directory):
            remove_leftovers(directory)

    def go_back_to(self, step: int, damaged: Iterable[int], otherwise: str = INCOMPLETE) -> None:
        """Rename or remove what is newer than the step a run continues from: it would pass for the newest or the best.

        Newer ones to resume from are damaged, or `otherwise`; they are kept under another name.
        """
        check_lease(self._run)
        with self._removing_after(self.last_directory, step) as newer:
            for found, directory in newer.items():
                put_aside(directory, DAMAGED if found in damaged else otherwise)
        with self._removing_after(self.best_directory, step) as newer:
            for directory in newer.values():
                remove(directory)
        # All go on from there together.
        write_json(self._settled_file, {"step": step})

    @contextmanager
    def _removing_after(self, parent: Path, step: int) -> Iterator[dict[int, Path]]:
        """The checkpoints after a step, which go; in the mirror, too."""
        newer = {found: path for found, path in checkpoint_directories(parent).items() if found > step}
        with self._mirror.going_back(parent, step) if self._mirror and newer else nullcontext():
            yield newer

    def saving(self, state: TrainState) -> Write[Checkpoint]:
        """Copy a state to resume from; what is returned writes the copy."""
        directory = self.last_directory / checkpoint_name(state.progress.step)
        files, facts = snapshot(state.tensors()), {"numbers": state.numbers()}

        def write_copy() -> Checkpoint:
            check_lease(self._run)
            return write(directory, files, facts)

        return write_copy

    def writes_elsewhere(self, state: TrainState) -> dict[Path, Callable[[Path], object]]:
        """What writes a state to resume from to another place than its own, by its own."""

        def write_state(place: Path) -> Checkpoint:
            check_lease(self._run)
            return save(place, state)

        return {self.last_directory / checkpoint_name(state.progress.step): write_state}

    def saving_if_best(self, state: TrainState, merits: Merits) -> Write[Checkpoint | None]:
        """Copy the weights; what is returned writes them if they are among the best so far, and removes the worst."""
        directory = self.best_directory / checkpoint_name(state.progress.step)
        files = snapshot({MODEL_FILE: state.evaluated.named_weights()})
        facts = {"numbers": state.numbers(), **merits.as_facts()}
        criterion = merits.best_by

        def write_copy() -> Checkpoint | None:
            rivals = [checkpoint for checkpoint in self.best() if checkpoint.directory != directory]
            better = [rival for rival in rivals if rival.merits.rank(criterion) >= merits.rank(criterion)]
            if len(better) >= self._config.keep_best:
                return None
            check_lease(self._run)
            saved = write(directory, files, facts)
            for checkpoint in self.best()[self._config.keep_best :]:
                remove(checkpoint.directory)
            return saved

        return write_copy

    def settle(self, step: int) -> None:
        """Note that all hosts have what belongs to the newest checkpoint, the one of this step; remove the oldest."""
        # They are another's now; all processes learn it from the next write, which is refused.
        if has_lost_lease(self._run):
            return
        write_json(self._settled_file, {"step": step})
        remove_oldest(self.last_directory, self._config.keep_last)
        for aside in self.last_directory.glob(f"{INCOMPLETE}step-*"):
            # Its steps have been taken again by now.
            if (checkpoint_step(Path(aside.name.removeprefix(INCOMPLETE))) or 0) <= step:
                remove(aside)

    def withdraw(self, step: int) -> None:
        """Remove a checkpoint that not all hosts have their part of."""
        if not has_lost_lease(self._run):
            remove(self.last_directory / checkpoint_name(step))


def damaged_checkpoints(directory: Path, reasons: Iterable[str]) -> TandemError:
    """The error for a run that has checkpoints, and none that is whole."""
    return TandemError(
        f"{directory}: all {len(list(reasons))} checkpoints are damaged ({'; '.join(reasons)}); restore one from a "
        f"copy, or delete {directory} to begin again"
    )


def name_damaged(damaged: Iterable[int]) -> str:
    """Which checkpoints are damaged, in words."""
    steps = [f"{step:,}" for step in sorted(damaged)]
    return f"steps {', '.join(steps)} are damaged" if len(steps) > 1 else f"step {steps[0]} is damaged"


def say_resume_damage(checkpoint: Checkpoint) -> None:
    """A line in the log for a checkpoint whose weights are used, and which no training would go on from."""
    if checkpoint.resume_damage:
        log.warning("%s; the weights beside it are whole, and are used", checkpoint.resume_damage)


def _usable(directories: Iterable[tuple[int, Path]], damaged: dict[int, str] | None) -> Iterator[Checkpoint]:
    """The checkpoints whose weights are whole; why others are damaged, by step."""
    for step, directory in directories:
        try:
            yield read_weights(directory)
        except DamagedCheckpointError as error:
            # A training at work may have removed it meanwhile.
            if damaged is not None and directory.exists():
                damaged[step] = str(error)
