"""State that each host keeps for itself beside the run's checkpoints, on its own disk if it has one.

hosts/host-1/step-00004000/exchange.safetensors   state of the exchange strategy: error feedback, momentum
hosts/host-1/step-00004000/optimizer.safetensors  Adam's means, where the hosts take steps of their own
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from tandem.cluster.exchange.exchange import Exchange
from tandem.cluster.exchange.strategy import ExchangePlan
from tandem.cluster.world import World
from tandem.config import ExchangeConfig
from tandem.layout import EXCHANGE_FILE, OPTIMIZER_FILE, RunPaths, checkpoint_directories, checkpoint_name
from tandem.training.checkpoints.checkpoint import (
    DamagedCheckpointError,
    read,
    remove,
    remove_leftovers,
    remove_oldest,
    write,
)
from tandem.training.train_state import TrainState


class ExchangeState:
    """Saves and restores the state of this process's host, in the host's first process."""

    def __init__(self, run: Path, world: World, plan: ExchangePlan, settings: ExchangeConfig, keep_last: int) -> None:
        self._directory = RunPaths(run).host_state(world.host)
        self._world, self._keep_last = world, keep_last
        # Saved state is of no use to a run in which any of this differs.
        self._facts = {
            "exchange": str(plan),
            "hosts": len(world.hosts),
            **plan.strategy.state_settings(settings),
            "order": "forward",  # of the weights in the saved vectors
        }

    def save(self, state: TrainState, exchange: Exchange) -> None:
        """Save what belongs to the checkpoint that is about to be written."""
        self.write(state.progress.step, self.files(state, exchange))

    def holds(self, step: int) -> bool:
        """Whether this host's state of a step has been saved."""
        return (self._directory / checkpoint_name(step)).is_dir()

    def write(self, step: int, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Save this host's files of a step, if there are any."""
        if not self._world.is_host_leader or not files:
            return
        write(self._directory / checkpoint_name(step), files, {"numbers": {"progress": {"step": step}}, **self._facts})
        # One more than there are checkpoints: the one that this belongs to is not written yet.
        remove_oldest(self._directory, self._keep_last + 1)

    def restore(self, state: TrainState, exchange: Exchange) -> int:
        """Restore what was saved with the checkpoint that the state comes from; the number of hosts that lack it.

        Some of it, such as momentum, must be the same on all hosts: where it is missing on one, all begin without.
        """
        step, saved, missing = state.progress.step, {}, False
        if self._world.is_host_leader:
            remove_leftovers(self._directory)
            for found, directory in checkpoint_directories(self._directory).items():
                # Left by steps that the run has gone back from, or by another run before this one.
                if found > step:
                    remove(directory)
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
        with suppress(DamagedCheckpointError):
            saved = read(self._directory / checkpoint_name(step))
            if all(saved.state.get(name) == value for name, value in self._facts.items()):
                return saved.tensors()
        return {}
