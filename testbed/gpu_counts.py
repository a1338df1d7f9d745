"""What Tandem makes a GPU do, counted on the rehearsal device (a CUDA device without a card, `rehearsal/`).

Launches of a micro-batch of `transformer-base` (widths, layers and dropout are the preset's; micro-batches and the
chunks of the loss are a hundred-and-twenty-eighth of their tokens, which changes no count), synchronisations of a step,
and of beam search for each position; and whether the CPU's and the GPU's branch compute the same objectives and
translations, with a narrow model. Counts, not times: they are the same on every machine. No real card takes part.
"""

from __future__ import annotations

from unittest.mock import patch

# The device has to be there before PyTorch looks for one.
from rehearsal.device import Rehearsal, rehearsed_cuda  # isort: skip

import torch

from tandem.cluster.exchange.strategies.allreduce import AllReduce
from tandem.cluster.world import World
from tandem.config import Config
from tandem.doctor.measure import Sentences, sentences
from tandem.model import loss
from tandem.model.batch import Batch
from tandem.model.loss import LossSums
from tandem.model.search import beam_search
from tandem.model.translation_model import TranslationModel
from tandem.monitor.step_clock import StepClock
from tandem.training.data_loader import make_loader
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState

NARROW = ("model.d_model=16", "model.heads=2", "model.d_ff=32", "corpus.vocab_size=1000", "model.compile=off")
WITHOUT_DROPOUT = tuple(f"model.{kind}=0.0" for kind in ("dropout", "attention_dropout", "activation_dropout"))
# A micro-batch with real widths takes a CPU a minute; its number of tokens only decides how many chunks the loss has.
SHRUNK = 128
# Long enough that the first position and the last few, which differ, do not show.
SOURCE_LENGTH, BEAM = 40, 4
PRECISIONS = ("float32", "bfloat16", "float16")


def stepper_on(device: torch.device, config: Config, used: Sentences) -> Stepper:
    world, batches = World(0, 1, device), used.batches(config)
    state = TrainState.fresh(config, used.vocabulary, device)
    return Stepper(
        config, world, state, make_loader(batches, world), StepClock(device), AllReduce(state.flat_vectors(), world)
    )


def step_counts(rehearsal: Rehearsal, precision: str) -> dict[str, int]:
    """Of a step of four micro-batches, after two in which buffers were made and the step before the first was read."""
    tokens = Config.load("transformer-base").batch.tokens
    assert tokens != "auto"
    settings = [
        f"train.precision={precision}",
        f"batch.tokens={tokens // SHRUNK}",
        f"model.max_length={tokens // SHRUNK}",
    ]
    config = Config.load("transformer-base", [*settings, "model.compile=off"])
    passes: list[int] = []

    def counted(self: Stepper, model: TranslationModel, inputs: Batch, factor: float) -> LossSums:
        before = rehearsal.counts.launches.total()
        sums = real_pass(self, model, inputs, factor)
        passes.append(rehearsal.counts.launches.total() - before)
        return sums

    real_pass = Stepper._pass
    smaller_chunks = patch.object(loss, "CUDA_CHUNK_ROWS", loss.CUDA_CHUNK_ROWS // SHRUNK)
    with sentences(config, None) as used, smaller_chunks, patch.object(Stepper, "_pass", counted):
        stepper = stepper_on(torch.device("cuda", 0), config, used)
        for step in (1, 2):
            stepper.step(stepper.loader.fetch(step))
        rehearsal.counts.clear()
        passes.clear()
        stepper.step(stepper.loader.fetch(3))
    totals = rehearsal.counts.totals()
    return {
        "micro_batches": len(passes),
        "launches_a_micro_batch": max(passes),
        "launches_besides": totals["launches"] - sum(passes),
        "synchronisations": totals["synchronisations"],
        "float64_launches": totals["slow"],
    }


def search_counts(rehearsal: Rehearsal) -> dict[str, float]:
    """Of beam search with an untrained model, for each position decoded."""
    config = Config.load("transformer-base", [*NARROW, "train.precision=float32"])
    model = TrainState.fresh(config, 1000, torch.device("cuda", 0)).model
    sources = [[5 + place % 900 for place in range(length)] for length in range(SOURCE_LENGTH - 8, SOURCE_LENGTH)]
    rehearsal.counts.clear()
    found = beam_search(model, sources, BEAM, 0.6)
    positions = max(map(len, found)) + 1
    totals = rehearsal.counts.totals()
    return {
        "positions": positions,
        "launches_a_position": totals["launches"] / positions,
        "synchronisations_a_position": totals["synchronisations"] / positions,
    }


def differences() -> dict[str, float]:
    """The largest relative difference between the objectives of three steps on the CPU and on the device."""
    found = {}
    for precision in PRECISIONS:
        config = Config.load(
            "transformer-base", [*NARROW, *WITHOUT_DROPOUT, f"train.precision={precision}", "batch.tokens=512"]
        )
        with sentences(config, None) as used:
            results = []
            for device in (torch.device("cpu"), torch.device("cuda", 0)):
                stepper = stepper_on(device, config, used)
                steps = [result for step in (1, 2, 3) for result in stepper.step(stepper.loader.fetch(step))]
                results.append([result.objective for result in [*steps, *stepper.flush()]])
            found[precision] = max(abs(cuda / cpu - 1) for cpu, cuda in zip(*results, strict=True))
    return found


def same_translations() -> bool:
    """Whether beam search finds the same on the CPU and on the device, in float32."""
    config = Config.load("transformer-base", [*NARROW, "train.precision=float32"])
    sources = [[5 + (7 * place + length) % 900 for place in range(length)] for length in range(1, 17)]
    found = []
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        model = TrainState.fresh(config, 1000, device).model
        found.append(beam_search(model, sources, BEAM, 0.6))
    return found[0] == found[1]


def measure() -> dict[str, object]:
    """All of the above."""
    with rehearsed_cuda() as rehearsal:
        return {
            "step": {precision: step_counts(rehearsal, precision) for precision in PRECISIONS},
            "beam_search": search_counts(rehearsal),
            "objective_differences": differences(),
            "same_translations": same_translations(),
        }
