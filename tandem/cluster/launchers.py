"""What the program that started this process told it, without importing anything heavy."""

from __future__ import annotations

import os
from typing import NamedTuple

from tandem.errors import TandemError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


class Place(NamedTuple):
    """A process's place among all processes of a run."""

    rank: int
    size: int
    local_rank: int

    @property
    def leads(self) -> bool:
        """Whether this is the one process that speaks and writes for all."""
        return self.rank == 0


def place() -> Place:
    """The place that torchrun gave this process; alone, if nothing started it."""
    present = [name for name in VARIABLES if name in os.environ]
    if not present:
        return Place(0, 1, 0)
    if len(present) < len(VARIABLES):
        missing = sorted(set(VARIABLES) - set(present))
        raise TandemError(f"{', '.join(present)} set but {', '.join(missing)} not: start the processes with torchrun")
    return Place(*(int(os.environ[name]) for name in VARIABLES))
