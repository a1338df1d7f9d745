"""What a run lives through: a checkpoint and back, and a card whose memory is full."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from tandem.doctor.self_test.result import Outcome
from tandem.doctor.self_test.setup import WARM_UP, Setup, Training
from tandem.errors import TandemError
from tandem.report.figures import size
from tandem.train.checkpoint import read, save, step_name
from tandem.train.state import TrainState

# Memory is filled with blocks of this share of the card, then with smaller and smaller ones, down to what the
# allocator rounds every request up to.
FIRST_SHARE, SMALLEST_BLOCK = 1 / 64, 512


def resume(setup: Setup) -> Outcome:
    """Save a checkpoint, load it into a fresh state, compare."""
    config = setup.alone()
    training = Training(setup, config, alone=True)
    training.take(WARM_UP)
    with TemporaryDirectory(prefix="tandem-self-test-") as directory:
        path = Path(directory) / step_name(training.state.progress.step)
        saved = save(path, training.state).size
        restored = TrainState.fresh(config, setup.sentences.vocabulary, setup.device)
        read(path).restore(restored)
    differing = [
        name
        for before, after in zip(_tensors(training.state), _tensors(restored), strict=True)
        for name in before.keys() | after.keys()
        if not _same(before.get(name), after.get(name))
    ]
    same_numbers = restored.numbers() == training.state.numbers()
    found = f"{len(differing)} tensors differ, such as {differing[0]}" if differing else "all tensors are the same bits"
    return Outcome.of(
        not differing and same_numbers,
        f"{found}; {size(saved)} on disk" + ("" if same_numbers else "; the progress is another one"),
        differing=len(differing),
        checkpoint_bytes=saved,
    )


def _tensors(state: TrainState) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return state.model_tensors(), state.optimizer_tensors()


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    return first is not None and second is not None and torch.equal(first.cpu(), second.cpu())


def full_memory(setup: Setup) -> Outcome:
    """Fill the card, try a step on it, make room again, and go on."""
    training = Training(setup, setup.alone(), alone=True)
    training.take(WARM_UP)
    before = training.state.flat.vector.detach().clone()
    blocks = _filled(setup)
    held = sum(block.nbytes for block in blocks)
    try:
        training.take(1)
        told = "a step found room in smaller parts"
    except TandemError as error:
        told = "a step was given up with a message that says what to set"
        if "batch." not in str(error):
            told = f"a step was given up: {error}"
    kept = told.startswith("a step found") or torch.equal(before, training.state.flat.vector.detach())
    del blocks
    torch.cuda.empty_cache()
    results = training.take(WARM_UP)
    goes_on = bool(results) and all(result.objective < float("inf") for result in results)
    after = "training went on" if goes_on else "training did not go on"
    return Outcome.of(
        kept and goes_on,
        f"with {size(held)} taken away {told}; {'weights were kept' if kept else 'weights were lost'}, and {after}",
        taken_bytes=held,
        weights_kept=kept,
        went_on=goes_on,
    )


def _filled(setup: Setup) -> list[Tensor]:
    """Tensors that leave no room for any other."""
    blocks: list[Tensor] = []
    length = int(setup.card.memory_bytes * FIRST_SHARE)
    while length >= SMALLEST_BLOCK:
        try:
            blocks.append(torch.empty(length, dtype=torch.uint8, device=setup.device))
        except torch.OutOfMemoryError:
            length //= 2
    return blocks
