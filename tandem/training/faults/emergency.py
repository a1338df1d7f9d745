"""Emergency checkpoints: the last whole step, saved by a process that others have left alone, from any thread.

Weights, optimizer and progress change in one stretch of a step (`WholeStep`), and while a process waits for another
they are those of the last whole step. So they can be saved without asking anybody. A run continued from there ends
with the same bits as one left alone, like from any other checkpoint.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tandem.cluster.world import World
from tandem.errors import TandemError
from tandem.layout import RunPaths, checkpoint_name
from tandem.monitor.device_clock import is_past, now
from tandem.storage import waiting_lock
from tandem.training.checkpoints.checkpoint import HIDDEN, save
from tandem.training.checkpoints.checkpoint_store import CheckpointStore
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.step import Stepper
from tandem.training.train_state import TrainingProgress, TrainState

# Longest wait for a step that is being finished at this moment.
CHANGE_SECONDS = 5.0
# Longest wait for a GPU to do what it was given, and between two looks.
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 0.01


class EmergencySaver:
    """Saves the last whole step of a training, if this process can.

    It must see the run's directory: the first process does, and so do others on its host or a shared disk, which save
    if the first one is gone. All of them save the same bytes, one after the other.
    """

    def __init__(
        self,
        directory: Path,
        world: World,
        stepper: Stepper,
        store: CheckpointStore,
        exchange_state: ExchangeState,
        *,
        settled: Callable[[], TrainingProgress | None],
        session: str,
    ) -> None:
        self._paths, self._world, self._stepper = RunPaths(directory), world, stepper
        self._store, self._exchange_state, self._settled = store, exchange_state, settled
        self._session = session
        """The text by which the run's lock shows that a directory is that of this session, not of one like it."""

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint that this process sees."""
        return self._store.newest_step() if self._sees_run() else None

    def save(self) -> None:
        """Save the last whole step, unless it is saved already or cannot be saved from here."""
        state = self._stepper.state
        # Neither a full disk nor a card that does not answer is a reason to hide why the process ends.
        with (
            suppress(TandemError, OSError, RuntimeError),
            state.whole.kept(CHANGE_SECONDS) as whole,
        ):
            progress = self._settled() if whole and _answers(self._world.device) and self._stepper.sound() else None
            if progress is not None:
                self._save(replace(state, progress=progress))

    def _save(self, state: TrainState) -> None:
        step, exchange = state.progress.step, self._stepper.exchange
        if not step or not exchange.in_sync_after(step):
            return
        files = _copied(self._exchange_state.files(state, exchange))
        # The main thread may be summing the next step's gradients; what it had changed by now must not be saved.
        if not exchange.state_is_of(step):
            return
        self._exchange_state.write(step, files)
        if self._sees_run():
            self._paths.checkpoints.mkdir(exist_ok=True)
            with waiting_lock(self._paths.checkpoints / ".emergency", lambda over: None):
                if step > (self._store.newest_step() or 0):
                    self._save_checkpoint(state)

    def _save_checkpoint(self, state: TrainState) -> None:
        """Write beside the others' checkpoints and rename; one that another process has put there is as good."""
        name = checkpoint_name(state.progress.step)
        # Of a form that is removed at the next start, if this process does not get to its end.
        own = self._paths.checkpoints / f"{HIDDEN}{name}.rank-{self._world.rank}.writing"
        shutil.rmtree(own, ignore_errors=True)
        save(own / name, state)
        # The run may have been started again in the meantime.
        if self._sees_run():
            with suppress(OSError):
                (own / name).rename(self._paths.checkpoints / name)
        shutil.rmtree(own, ignore_errors=True)

    def _sees_run(self) -> bool:
        """Whether the directory is that of this session's run, and not what another host has under the same name."""
        with suppress(OSError):
            return self._paths.lock_file.read_text() == self._session
        return False


def _copied(files: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {name: {key: tensor.clone() for key, tensor in tensors.items()} for name, tensors in files.items()}


def _answers(device: torch.device) -> bool:
    """Whether a device gets through what it was given: a GPU in a sum with a process that is gone never does."""
    given, deadline = now(device), time.monotonic() + ANSWER_SECONDS
    while not is_past(given):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
