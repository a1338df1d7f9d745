"""The other model that a run begins with, and its copy in the run's directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.training.checkpoints.checkpoint import Checkpoint, DamagedCheckpointError, read, write
from tandem.training.origin import Origin


def read_start(run: RunPaths) -> Checkpoint:
    """The copy of the state that a run began with."""
    try:
        return read(run.start)
    except DamagedCheckpointError as error:
        raise TandemError(f"{error}; put back a copy of it, or begin again with another --run") from error


@dataclass(frozen=True)
class StartingPoint:
    """The state that a run begins with, made of another run's checkpoint."""

    origin: Origin
    files: Mapping[str, Mapping[str, Tensor]]
    """Tensors by name, under the checkpoint's file that holds them."""
    numbers: Mapping[str, Any]
    remarks: Sequence[str] = field(default_factory=list)
    """What the user should know of it."""

    def save(self, run: RunPaths) -> None:
        """Copy it to the new run, which does not need the other one any more."""
        write(run.start, self.files, {"numbers": dict(self.numbers), "from": asdict(self.origin)})
