"""State that each host keeps for itself beside the run's checkpoints, on its own disk if it has one.

hosts/host-1/step-00004000/exchange.safetensors   state of the exchange strategy: error feedback, momentum
hosts/host-1/step-00004000/optimizer.safetensors  Adam's means, where the hosts take steps of their own
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from tandem.cluster.exchange.exchange import Exchange
from tandem.cluster.exchange.strategy import ExchangePlan
from tandem.cluster.world import World
from tandem.config import ExchangeConfig
from tandem.layout import EXCHANGE_FILE, OPTIMIZER_FILE, RunPaths, checkpoint_directories, checkpoint_name
from tandem.training.checkpoints.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    read,
    remove,
    remove_leftovers,
    remove_oldest,
    write,
)
from tandem.training.checkpoints.checkpoint_store import Write, snapshot
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.train_state import TrainState


class ExchangeState:
    """Saves and restores the state of this process's host, in the host's first process."""

    def __init__(
        self,
        run: Path,
        world: World,
        plan: ExchangePlan,
        settings: ExchangeConfig,
        keep_last: int,
        mirror: Mirror | None = None,
    ) -> None:
        self._mirror = mirror
        self._directory = RunPaths(run).host_state(world.host)
        self._world, self._keep_last, self._keeps_state = world, keep_last, plan.strategy.keeps_state
        # In an emergency one thread saves the step that another may be writing.
        self._writing = threading.Lock()
        # Saved state is of no use to a run in which any of this differs.
        self._facts = {
            "exchange": str(plan),
            "hosts": len(world.hosts),
            **plan.strategy.state_settings(settings),
            "order": "forward",  # of the weights in the saved vectors
        }

    def saving(self, state: TrainState, exchange: Exchange) -> Write[None] | None:
        """Copy what belongs to the checkpoint that is about to be written; what is returned writes the copy."""
        files = self.files(state, exchange)
        if not self._world.is_host_leader or not files:
            return None
        step, copied = state.progress.step, snapshot(files)
        return lambda: self.write(step, copied)

    def writes_elsewhere(self, state: TrainState, exchange: Exchange) -> dict[Path, Callable[[Path], object]]:
        """What writes this host's part of a checkpoint to another place than its own, by its own."""
        files, step = self.files(state, exchange), state.progress.step
        if not self._world.is_host_leader or not files:
            return {}
        return {self._directory / checkpoint_name(step): lambda place: write(place, files, self._facts_of(step))}

    def holds(self, step: int) -> bool:
        """Whether this host's state of a step has been saved."""
        return (self._directory / checkpoint_name(step)).is_dir()

    def write(self, step: int, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Save this host's files of a step, if there are any and they are not saved yet."""
        if not self._world.is_host_leader or not files:
            return
        with self._writing:
            if not self.holds(step):
                write(self._directory / checkpoint_name(step), files, self._facts_of(step))

    def _facts_of(self, step: int) -> dict[str, Any]:
        return {"numbers": {"progress": {"step": step}}, **self._facts}

    def prune(self) -> None:
        """Remove the oldest."""
        if self._world.is_host_leader:
            # One more than there are checkpoints: the one that the newest belongs to may not be written yet.
            remove_oldest(self._directory, self._keep_last + 1)

    def withdraw(self, step: int) -> None:
        """Remove what belongs to a checkpoint that could not be written everywhere."""
        if self._world.is_host_leader:
            remove(self._directory / checkpoint_name(step))

    def _remove_after(self, step: int) -> None:
        newer = [path for found, path in checkpoint_directories(self._directory).items() if found > step]
        with self._mirror.going_back(self._directory, step) if self._mirror and newer else nullcontext():
            for directory in newer:
                remove(directory)

    def can_resume(self, step: int) -> bool:
        """Whether this host has all that it needs to go on from a step exactly as it would have.

        An error, if the mirror has it and this host's disk has no room for it.
        """
        needed = self._keeps_state and self._world.is_host_leader and len(self._world.hosts) > 1
        if not needed or self._read(step) is not None:
            return True
        mirror, directory = self._mirror, self._directory / checkpoint_name(step)
        return mirror is not None and mirror.fetch(directory) and self._read(step) is not None

    def restore(self, state: TrainState, exchange: Exchange) -> int:
        """Restore what was saved with the checkpoint that the state comes from; the number of hosts that lack it.

        Some of it, such as momentum, must be the same on all hosts: where it is missing on one, all begin without.
        """
        step, saved, missing = state.progress.step, {}, False
        if self._world.is_host_leader:
            remove_leftovers(self._directory)
            # Left by steps that the run has gone back from, or by another run before this one.
            self._remove_after(step)
            if step and self.files(state, exchange):
                saved = self._saved(step)
                missing = not saved
        hosts_without = int(self._world.total(missing)[0])
        if saved and not hosts_without:
            exchange.load_state(saved[EXCHANGE_FILE])
            if OPTIMIZER_FILE in saved:
                state.restore_optimizer(saved[OPTIMIZER_FILE])
        if not exchange.shares_gradients(step):
            for tensor in state.optimizer_tensors().values():
                self._world.broadcast_in_host(tensor)
        return hosts_without

    def files(self, state: TrainState, exchange: Exchange) -> dict[str, Mapping[str, Tensor]]:
        """What belongs to a checkpoint, by the file that holds it."""
        files: dict[str, Mapping[str, Tensor]] = {}
        if remembered := exchange.state_tensors():
            files[EXCHANGE_FILE] = remembered
        if not exchange.shares_gradients(state.progress.step):
            files[OPTIMIZER_FILE] = state.optimizer_tensors()
        return files

    def _saved(self, step: int) -> dict[str, dict[str, Tensor]]:
        """The files of a step; nothing, if they are missing, damaged, or another strategy's."""
        saved = self._read(step)
        return {} if saved is None else saved.tensors()

    def _read(self, step: int) -> Checkpoint | None:
        with suppress(DamagedCheckpointError):
            saved = read(self._directory / checkpoint_name(step))
            if all(saved.state.get(name) == value for name, value in self._facts.items()):
                return saved
        return None
