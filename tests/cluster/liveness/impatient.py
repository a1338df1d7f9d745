"""The command line with heartbeats that lose patience in seconds instead of tens of them.

    python -m tests.cluster.liveness.impatient train ...

With $HANG_IN_DATA its third step reads that file first, which may be a pipe that nobody writes to.
"""

from __future__ import annotations

import os
from pathlib import Path

from tandem.cli.command_line import program
from tandem.cluster.liveness.pulse import TIMING
from tandem.training.batches import GlobalBatch
from tandem.training.data_loader import MicroBatchLoader

TIMING.beat = 0.5
TIMING.silent = 4.0
TIMING.hanging = 4.0

fetch = MicroBatchLoader.fetch


def fetch_or_hang(self: MicroBatchLoader, step: int) -> GlobalBatch:
    if step == 3 and (pipe := os.environ.get("HANG_IN_DATA")):
        Path(pipe).read_text()
    return fetch(self, step)


MicroBatchLoader.fetch = fetch_or_hang  # type: ignore[method-assign]

if __name__ == "__main__":
    program()
