"""Checks that train the preset's model: speed and memory beside predictions, bits, checkpoint, full memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from tandem.cards import known_card
from tandem.cluster.devices import configure_device
from tandem.doctor.card.prediction import CardPrediction, Machines, predict_on_card
from tandem.doctor.self_test.check_result import Outcome, first_line
from tandem.doctor.self_test.check_setup import WARM_UP, CheckTraining, Setup
from tandem.errors import TandemError
from tandem.layout import checkpoint_name
from tandem.model.memory_estimate import is_estimated, run_memory
from tandem.training.checkpoints.checkpoint import read, save
from tandem.training.train_state import TrainState
from tandem.units import short_duration, size

STEPS_OF_BITS = 10
# The host may ask the card once a step how it went, and only about work that is done.
SYNCHRONISATIONS_A_STEP = 1
# Memory is filled with blocks of this share of the card, then with smaller and smaller ones, down to what the
# allocator rounds every request up to.
FIRST_SHARE, SMALLEST_BLOCK = 1 / 64, 512


def speed(setup: Setup) -> Outcome:
    """Every step's loss is finite."""
    config = setup.config
    step, results = CheckTraining(setup, together=True).timed_for(setup.seconds)
    tokens = sum(result.target_tokens for result in results) / len(results) / step
    prediction = _predicted(setup)
    return Outcome.of(
        all(result.objective < float("inf") for result in results),
        f"{tokens:,.0f} target tokens/s, {short_duration(step)} a step in {config.train.precision}; "
        + _beside(prediction, step),
        steps=len(results),
        processes=setup.world.size,
        precision=config.train.precision,
        batch_tokens=config.batch.tokens,
        micro_batches=config.batch.micro_batches,
        tokens_per_second=tokens,
        step_seconds=step,
        predicted_step_seconds=None if prediction is None else prediction.step_seconds,
        predicted_step_seconds_range=None if prediction is None else list(prediction.step_seconds_range),
    )


def _predicted(setup: Setup) -> CardPrediction | None:
    """None where no figures of the card are known, or a network lies between."""
    card = known_card(setup.card.name)
    if card is None or len(setup.world.hosts) > 1:
        return None
    try:
        return predict_on_card(setup.config, setup.sentences.vocabulary, Machines(card, setup.world.size))
    except TandemError:
        return None


def _beside(prediction: CardPrediction | None, step: float) -> str:
    if prediction is None:
        return "nothing was predicted for these cards"
    low, high = prediction.step_seconds_range
    where = "inside" if low <= step <= high else "outside"
    return (
        f"predicted {short_duration(prediction.step_seconds)} ({short_duration(low)} to {short_duration(high)}): "
        f"{where} that range, {step / prediction.step_seconds:.2f} times the predicted time"
    )


def memory(setup: Setup) -> Outcome:
    """No more than estimated."""
    config, tokens = setup.config, setup.config.batch.tokens
    if not is_estimated(config.model):
        return Outcome.not_applicable(f"nothing is estimated for model.kind={config.model.kind}")
    assert tokens != "auto", "the set-up has chosen"
    before = torch.cuda.memory_allocated(setup.device)
    torch.cuda.reset_peak_memory_stats(setup.device)
    CheckTraining(setup)
    peak = torch.cuda.max_memory_allocated(setup.device) - before
    reserved = torch.cuda.max_memory_reserved(setup.device) - before
    estimate = run_memory(config, setup.sentences.vocabulary, tokens)
    # The allocator does not see the CUDA context.
    estimated = estimate.total - estimate.context
    return Outcome.of(
        peak <= estimated,
        f"peak of {size(peak)} in tensors ({size(reserved)} reserved), {peak / estimated:.0%} of the estimated "
        f"{size(estimated)}",
        peak_bytes=peak,
        reserved_bytes=reserved,
        estimated_bytes=estimated,
        batch_tokens=tokens,
    )


def synchronisations(setup: Setup) -> Outcome:
    """At most one a step."""
    # PyTorch's public function fails on a build that lacks the private one.
    if not hasattr(torch._C, "_cuda_set_sync_debug_mode"):
        return Outcome.not_applicable("this build of PyTorch does not tell")
    training = CheckTraining(setup)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            training.take(STEPS_OF_BITS)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    count = sum("synchroniz" in str(warning.message) for warning in heard)
    return Outcome.of(
        count / STEPS_OF_BITS <= SYNCHRONISATIONS_A_STEP,
        f"{count} warnings in {STEPS_OF_BITS} steps (waiting for an event gives none)",
        warnings=count,
        steps=STEPS_OF_BITS,
    )


def compiled(setup: Setup) -> Outcome:
    """Compiled layers train."""
    plain, _ = CheckTraining(setup).timed_for(setup.seconds)
    try:
        training = CheckTraining(setup, compiled=True)
        fused, _ = training.timed_for(setup.seconds)
    except Exception as error:  # whatever a compiler raises
        return Outcome.not_applicable(
            f"torch.compile does not work here, training does without ({first_line(error)})", step_seconds=plain
        )
    first = training.warm_up_seconds
    return Outcome.of(
        True,
        f"compiled in {short_duration(first)}; a micro-batch takes {short_duration(fused)} "
        f"instead of {short_duration(plain)}, {plain / fused:.2f} times as fast",
        compile_seconds=first,
        step_seconds=plain,
        compiled_step_seconds=fused,
    )


def determinism(setup: Setup) -> Outcome:
    """Ten steps twice are the same bits with train.deterministic."""
    same, seconds = {}, {}
    for deterministic in (False, True):
        with _deterministic(setup.device, deterministic):
            (first, first_seconds), (second, second_seconds) = (_weights_and_seconds(setup) for _ in range(2))
        same[deterministic] = bool(torch.equal(first, second))
        seconds[deterministic] = min(first_seconds, second_seconds)
    cost = seconds[True] / seconds[False]
    words = {True: "the same bits", False: "other bits"}
    return Outcome.of(
        same[True],
        f"{words[same[True]]} with train.deterministic, {words[same[False]]} without; it takes {cost:.2f} times "
        "the time",
        same_bits_when_deterministic=same[True],
        same_bits_otherwise=same[False],
        deterministic_step_seconds=seconds[True],
        step_seconds=seconds[False],
    )


def _weights_and_seconds(setup: Setup) -> tuple[Tensor, float]:
    """The weights after some steps, and what a step took."""
    training = CheckTraining(setup)
    seconds, _ = training.timed(STEPS_OF_BITS - WARM_UP)
    return training.state.flat.vector.detach().clone(), seconds


@contextmanager
def _deterministic(device: torch.device, on: bool) -> Iterator[None]:
    """The switches of `train.deterministic` for the time of a block."""
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    configure_device(device, tf32=False, deterministic=on)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.enable_cudnn_sdp(before)


def resume(setup: Setup) -> Outcome:
    """A checkpoint brings back the same bits."""
    training = CheckTraining(setup)
    restored = TrainState.fresh(training.config, setup.sentences.vocabulary, setup.device)
    with TemporaryDirectory(prefix="tandem-self-test-") as directory:
        path = Path(directory) / checkpoint_name(training.state.progress.step)
        saved = save(path, training.state).size
        read(path).restore(restored)
    differing = [
        name
        for file, tensors in training.state.tensors().items()
        for name, tensor in tensors.items()
        if not torch.equal(tensor.cpu(), restored.tensors()[file][name].cpu())
    ]
    same_numbers = restored.numbers() == training.state.numbers()
    found = f"{len(differing)} tensors differ, such as {differing[0]}" if differing else "all tensors are the same bits"
    return Outcome.of(
        not differing and same_numbers,
        f"{found}; {size(saved)} on disk" + ("" if same_numbers else "; the progress is another one"),
        differing=len(differing),
        checkpoint_bytes=saved,
    )


def full_memory(setup: Setup) -> Outcome:
    """The weights stay, and training goes on."""
    training = CheckTraining(setup)
    before = training.state.flat.vector.detach().clone()
    blocks = _filled(setup)
    held = sum(block.nbytes for block in blocks)
    try:
        training.take(1)
        told, kept = "a step found room in smaller parts", True
    except TandemError as error:
        told = "a step was given up with a message that says what to set"
        if "batch." not in str(error):
            told = f"a step was given up: {error}"
        kept = torch.equal(before, training.state.flat.vector.detach())
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
