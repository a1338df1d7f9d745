"""Measurements inside one process on the rehearsal device, printed as JSON.

python -m rehearsal --module tests.gpu.measured -- figures | memory PRECISION | trial
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any
from unittest.mock import patch

import torch

from rehearsal.device import Rehearsal
from rehearsal.session import current
from tandem.cluster.world import World
from tandem.config import Config
from tandem.doctor.measure import sentences
from tandem.model import loss
from tandem.model.batch import Batch
from tandem.model.loss import LossSums
from tandem.model.memory_estimate import estimate_memory
from tandem.model.translation_model import TranslationModel
from tandem.training.startup.auto_settings import trial_step_seconds
from tandem.training.step import Stepper
from testbed.gpu_counts import (
    NARROW,
    differences,
    same_translations,
    search_counts,
    step_counts,
    stepper_on,
)

CARD = torch.device("cuda", 0)
# Tokens of a micro-batch; with as many rows a chunk, its loss is made in one.
TOKENS = 64


def figures(rehearsal: Rehearsal) -> dict[str, Any]:
    return {
        "step": step_counts(rehearsal, "bfloat16"),
        "beam_search": search_counts(rehearsal),
        "objective_differences": differences(),
        "same_translations": same_translations(),
        "narrow": {
            "one of each": narrow_launches(rehearsal, 1, 1, TOKENS),
            "2 encoder layers": narrow_launches(rehearsal, 2, 1, TOKENS),
            "2 decoder layers": narrow_launches(rehearsal, 1, 2, TOKENS),
            "2 chunks": narrow_launches(rehearsal, 1, 1, TOKENS // 2),
        },
    }


def narrow_launches(rehearsal: Rehearsal, encoder: int, decoder: int, chunk_rows: int) -> int:
    """Launches of the largest micro-batch of a step, with so many layers and rows of logits at a time."""
    layers = (f"model.encoder_layers={encoder}", f"model.decoder_layers={decoder}")
    batch = (f"batch.tokens={TOKENS}", f"model.max_length={TOKENS}", "train.precision=bfloat16")
    config = Config.load("transformer-base", [*NARROW, *layers, *batch])
    passes = []
    real = Stepper._pass

    def counted(self: Stepper, model: TranslationModel, inputs: Batch, factor: float) -> LossSums:
        before = rehearsal.counts.launches.total()
        sums = real(self, model, inputs, factor)
        passes.append(rehearsal.counts.launches.total() - before)
        return sums

    rows = patch.object(loss, "CUDA_CHUNK_ROWS", chunk_rows)
    with sentences(config, None) as used, rows, patch.object(Stepper, "_pass", counted):
        stepper = stepper_on(CARD, config, used)
        stepper.step(stepper.loader.fetch(1))
        stepper.flush()
    return max(passes)


def memory(rehearsal: Rehearsal, precision: str) -> dict[str, int]:
    """The peak of memory of two steps of the small preset, and what arithmetic says of it."""
    config: Config = Config.load("small", [f"train.precision={precision}", "batch.tokens=2048", "model.compile=off"])
    with sentences(config, None) as used:
        stepper = stepper_on(CARD, config, used)
        for step in (1, 2):
            stepper.step(stepper.loader.fetch(step))
        stepper.flush()
        estimate = estimate_memory(config.model, used.vocabulary, 2048, precision)
    return {"counted": rehearsal.card().peak, "estimated": estimate.total - estimate.context, **estimate.as_dict()}


def trial(rehearsal: Rehearsal) -> dict[str, int]:
    """Bytes on the card after a trial of micro-batches, where Python's garbage collector does not help."""
    config = Config.load("demo", ["train.precision=bfloat16", "model.compile=off", *NARROW])
    with sentences(config, None) as used:
        # What PyTorch does only once, such as importing its optimizers, may leave rings behind.
        for _ in range(2):
            gc.collect()
            gc.disable()
            trial_step_seconds(config, World(0, 1, CARD), used.batches(config), used.vocabulary, seconds=0.0)
    return {"left": rehearsal.card().allocated}


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    print(json.dumps({"figures": figures, "memory": memory, "trial": trial}[what](current(), *arguments)))  # type: ignore[operator]
