"""Who this process is among all processes of a run, and how they agree on small things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.launchers import place
from tandem.errors import TandemError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """A process's place: its rank among `size` processes, and the device it computes on."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes what exists once in a run."""
        return not self.rank

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

    def together(self, action: Callable[[], T]) -> T:
        """Do something that may fail on some process: then all of them fail, and none waits for ever."""
        try:
            result = action()
        except TandemError:
            self.agree(True)
            raise
        if self.agree(False):
            raise TandemError("another process has failed; its message says why")
        return result


@contextmanager
def joined_world() -> Iterator[World]:
    """Join the processes that were started together, or stand alone; leave them in good order."""
    rank, size, local_rank = place()
    if not torch.cuda.is_available():
        device = torch.device("cpu")
    else:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if size == 1:
        yield World(rank, size, device)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(rank, size, device)
    finally:
        dist.destroy_process_group()
