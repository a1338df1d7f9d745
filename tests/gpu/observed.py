"""Runs tandem's command line on the rehearsal device and writes what each training step made the device do.

    python -m rehearsal --module tests.gpu.observed -- DIRECTORY [full=STEP:BYTES:RANK] [fault=NAME] -- train ...

Writes DIRECTORY/steps-RANK.json: for each step what was counted from the fetched batch to the step's end, and the
settings of PyTorch that it was computed with. `full` lets an allocation of at least so many bytes fail in that step of
that rank; `fault` is one of tests/gpu/patched.py.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from rehearsal.session import current
from tandem.cli.command_line import program
from tandem.training.batches import GlobalBatch
from tandem.training.trainer import Trainer
from tests.gpu.patched import PATCHES


def main(directory: Path, options: dict[str, str], arguments: list[str]) -> None:
    rehearsal, rank = current(), int(os.environ.get("RANK", "0"))
    observed: list[dict[str, Any]] = []
    real_step = Trainer.step
    full_step, full_bytes, full_rank = map(int, options.get("full", "0:0:0").split(":"))

    def observed_step(trainer: Trainer, batch: GlobalBatch) -> None:
        rehearsal.counts.clear()
        if (batch.step, rank) == (full_step, full_rank):
            rehearsal.fail_allocation(above_bytes=full_bytes, card=rehearsal.card(trainer.world.device).index)
        real_step(trainer, batch)
        settings = {
            "fp32_precision": torch.backends.cuda.matmul.fp32_precision,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "cublas": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        }
        observed.append({"step": batch.step, "settings": settings, **json.loads(rehearsal.counts.to_json())})
        (directory / f"steps-{rank}.json").write_text(json.dumps(observed))

    sys.argv = ["tandem", *arguments]
    with ExitStack() as stack:
        stack.enter_context(patch.object(Trainer, "step", observed_step))
        if "fault" in options:
            stack.enter_context(PATCHES[options["fault"]]())
        program()


if __name__ == "__main__":
    place = sys.argv.index("--")
    directory, *options = sys.argv[1:place]
    main(Path(directory), dict(option.split("=") for option in options), sys.argv[place + 1 :])
