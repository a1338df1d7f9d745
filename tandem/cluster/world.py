"""Who this process is among all processes of a run, and how they agree on small things."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.errors import TandemError

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


@dataclass(frozen=True)
class World:
    """A process's place: its rank among `size` processes, and the device it computes on."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes what exists once in a run."""
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all processes: one small message, the same answer everywhere."""
        if self.size == 1:
            return list(numbers)
        packed = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(packed)
        return [float(number) for number in packed.tolist()]

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, wish: bool) -> bool:
        """True for all processes if it is true for any of them."""
        return self.total(float(wish))[0] > 0


@contextmanager
def joined_world() -> Iterator[World]:
    """Join the processes that torchrun started, or stand alone; leave them in good order."""
    present = [name for name in LAUNCHER_VARIABLES if name in os.environ]
    if not present:
        yield World(0, 1, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return
    if len(present) < len(LAUNCHER_VARIABLES):
        missing = sorted(set(LAUNCHER_VARIABLES) - set(present))
        raise TandemError(f"{', '.join(present)} set but {', '.join(missing)} not: start the processes with torchrun")
    rank, size, local_rank = (int(os.environ[name]) for name in LAUNCHER_VARIABLES)
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(rank, size, device)
    finally:
        dist.destroy_process_group()
