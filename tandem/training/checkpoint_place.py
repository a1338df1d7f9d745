"""Paths by which people name a model: a run, or one of its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tandem.layout import RUN_FILE, STATE_FILE

# Checkpoints that are named after what they are, below a run.
NAMED = ("best", "last", "averaged")


class CheckpointPlace(NamedTuple):
    """A run's directory, and which of its checkpoints: a name, a path, or None where the run alone was named."""

    run: Path
    choice: str | None


def checkpoint_place(place: Path) -> CheckpointPlace | None:
    """What RUN, RUN/best, RUN/last, RUN/averaged or a directory in RUN/checkpoints names; None for anything else."""
    if (place / RUN_FILE).is_file():
        return CheckpointPlace(place, None)
    if place.name in NAMED and (place.parent / RUN_FILE).is_file():
        return CheckpointPlace(place.parent, place.name)
    for directory in place.absolute().parents[:2]:
        if (directory / RUN_FILE).is_file() and (place / STATE_FILE).is_file():
            return CheckpointPlace(directory, str(place))
    return None
