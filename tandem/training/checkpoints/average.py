"""The mean of several checkpoints' weights, which often translates better than any of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tandem.errors import TandemError
from tandem.layout import MODEL_FILE
from tandem.training.checkpoints.checkpoint import Checkpoint, write
from tandem.training.checkpoints.checkpoint_store import (
    CheckpointStore,
    damaged_checkpoints,
    name_damaged,
    say_resume_damage,
)
from tandem.training.run_directory import Run

log = logging.getLogger(__name__)


def average(checkpoints: Sequence[Checkpoint], out: Path) -> Checkpoint:
    """Write a checkpoint, weights only, that is the mean of others of the same model."""
    if not checkpoints:
        raise TandemError("there is no checkpoint to average; train first")
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, weights in checkpoint.model().items():
            # Summed in double precision, one checkpoint in memory at a time.
            total[name] = total[name] + weights.double() if name in total else weights.double()
    mean = {name: (weights / len(checkpoints)).to(torch.float32) for name, weights in total.items()}
    newest = max(checkpoints, key=lambda checkpoint: checkpoint.step)
    steps = sorted(checkpoint.step for checkpoint in checkpoints)
    return write(out, {MODEL_FILE: mean}, {"numbers": newest.state["numbers"], "averaged_steps": steps})


def average_run(run: Run, *, last: int | None, best: int | None) -> Checkpoint:
    """Average a run's newest or best checkpoints; by default all the newest ones there are."""
    if last is not None and best is not None:
        raise TandemError("--last and --best cannot both be averaged; give one of them")
    store = CheckpointStore(run.directory)
    damaged: dict[int, str] = {}
    newest = last or run.config.checkpoint.keep_last
    found = store.newest(newest, damaged) if best is None else store.best(damaged)[:best]
    kind, wanted = ("last", last) if best is None else ("best", best)
    if wanted is not None and len(found) < wanted:
        why, remedy = "", f"train with checkpoint.keep_{kind}={wanted}"
        if damaged:
            why, remedy = f" ({name_damaged(damaged)})", "restore what is damaged from a copy"
        raise TandemError(
            f"{run.directory}: keeps {len(found)} of the {wanted} checkpoints to average{why}; "
            f"ask for fewer, or {remedy}"
        )
    if damaged and not found:
        raise damaged_checkpoints(store.last_directory, list(damaged.values()))
    if damaged:
        log.warning("%s: %s; the others are averaged", run.directory, name_damaged(damaged))
    for checkpoint in found:
        say_resume_damage(checkpoint)
    return average(found, run.averaged)
