"""What each host keeps for itself beside the run's checkpoints, on its own disk if it has one.

hosts/host-1/step-00004000/exchange.safetensors   what its way of exchanging remembers: error feedback, momentum
hosts/host-1/step-00004000/optimizer.safetensors  Adam's means, where the hosts take steps of their own
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from tandem.cluster.exchange import Exchange
from tandem.cluster.strategies import Plan
from tandem.cluster.world import World
from tandem.config import ExchangeConfig
from tandem.train.checkpoint import (
    DamagedCheckpointError,
    read,
    remove_leftovers,
    step_directories,
    step_name,
    step_of,
    write,
)
from tandem.train.checkpoint import remove as remove_checkpoint
from tandem.train.run import OPTIMIZER_FILE
from tandem.train.state import TrainState

EXCHANGE_FILE = "exchange.safetensors"


class HostMemory:
    """What this process's host remembers of a run, written and read by the host's first process."""

    def __init__(self, run: Path, world: World, plan: Plan, settings: ExchangeConfig, keep_last: int) -> None:
        self._directory = run / "hosts" / f"host-{world.host}"
        self._world, self._keep_last = world, keep_last
        # What a memory is of no use without.
        self._facts = {
            "exchange": str(plan),
            "hosts": len(world.hosts),
            "deltas": settings.deltas,
            "powersgd_rank": settings.powersgd_rank,
            # The order of the weights in the vectors that are remembered.
            "order": "forward",
        }

    def keep(self, state: TrainState, exchange: Exchange) -> None:
        """Save what belongs to the checkpoint that is about to be written."""
        files = self._files(state, exchange)
        if not self._world.leads_host or not files:
            return
        step = state.progress.step
        write(self._directory / step_name(step), files, {"numbers": {"progress": {"step": step}}, **self._facts})
        # One more than there are checkpoints: the one that this belongs to is not written yet.
        for directory in step_directories(self._directory)[: -self._keep_last - 1]:
            remove_checkpoint(directory)

    def recall(self, state: TrainState, exchange: Exchange) -> int:
        """Take up what was saved with the checkpoint that the state comes from, if all hosts can.

        Some of it, such as momentum, must be the same on all hosts: where it is missing on one, all begin with an
        empty memory. Returns the number of those hosts.
        """
        step, saved, missing = state.progress.step, {}, False
        if self._world.leads_host:
            remove_leftovers(self._directory)
            for directory in step_directories(self._directory):
                # Of steps that the run has gone back from, or of another run before this one.
                if step_of(directory) > step:
                    remove_checkpoint(directory)
            if step and self._files(state, exchange):
                saved = self._saved(step)
                missing = not saved
        hosts_without = int(self._world.total(missing)[0])
        if saved and not hosts_without:
            exchange.restore(saved[EXCHANGE_FILE])
            if OPTIMIZER_FILE in saved:
                state.restore_optimizer(saved[OPTIMIZER_FILE])
        if not exchange.shares_gradients(step):
            for tensor in state.optimizer_tensors().values():
                self._world.pass_on_inside(tensor)
        return hosts_without

    def _files(self, state: TrainState, exchange: Exchange) -> dict[str, Mapping[str, Tensor]]:
        files: dict[str, Mapping[str, Tensor]] = {}
        if remembered := exchange.tensors():
            files[EXCHANGE_FILE] = remembered
        if not exchange.shares_gradients(state.progress.step):
            files[OPTIMIZER_FILE] = state.optimizer_tensors()
        return files

    def _saved(self, step: int) -> dict[str, dict[str, Tensor]]:
        """The files of a step; nothing, if they are missing, damaged, or of another way of exchanging."""
        directory = self._directory / step_name(step)
        with suppress(DamagedCheckpointError):
            saved = read(directory)
            if all(saved.state.get(name) == value for name, value in self._facts.items()):
                return {name: load_file(directory / name) for name in saved.state["files"]}
        return {}
