"""Trainings of the preset's model: speed and memory beside predictions, synchronisations, torch.compile, bits."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tandem.cards import known_card
from tandem.cluster.devices import configure_device
from tandem.doctor.card_prediction import CardPrediction, Machines, predict_on_card
from tandem.doctor.figures import time as duration
from tandem.doctor.self_test.result import Outcome
from tandem.doctor.self_test.setup import WARM_UP, Setup, Training
from tandem.errors import TandemError
from tandem.model.memory_estimate import estimate_memory
from tandem.report.figures import size

STEPS_OF_BITS = 10
# The host may ask the card once a step how it went, and only about work that is done.
SYNCHRONISATIONS_A_STEP = 1


def speed(setup: Setup) -> Outcome:
    """Steps of all processes together for some seconds, beside the prediction for this card."""
    config, world = setup.config, setup.world
    training = Training(setup, config, alone=False)
    training.take(WARM_UP)
    count = training.steps_in(setup.seconds)
    seconds, results = training.timed(count)
    tokens = sum(result.target_tokens for result in results) / seconds
    step = seconds / count
    finite = all(result.objective < float("inf") for result in results)
    prediction = _predicted(setup)
    told = _beside(prediction, step)
    return Outcome.of(
        finite and len(results) == count,
        f"{tokens:,.0f} target tokens/s, {duration(step)} a step in {config.train.precision}; {told}",
        steps=count,
        processes=world.size,
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
        f"predicted {duration(prediction.step_seconds)} ({duration(low)} to {duration(high)}): {where} that range, "
        f"{step / prediction.step_seconds:.2f} times the predicted time"
    )


def memory(setup: Setup) -> Outcome:
    """The most that the allocator ever held during a few steps, beside the estimate that runs are refused by."""
    config, tokens = setup.config, setup.config.batch.tokens
    assert tokens != "auto", "the set-up has chosen"
    before = torch.cuda.memory_allocated(setup.device)
    torch.cuda.reset_peak_memory_stats(setup.device)
    Training(setup, setup.alone(), alone=True).take(WARM_UP)
    peak = torch.cuda.max_memory_allocated(setup.device) - before
    reserved = torch.cuda.max_memory_reserved(setup.device) - before
    estimate = estimate_memory(config.model, setup.sentences.vocabulary, tokens, config.train.precision)
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
    """How often a step makes the host wait, by CUDA's own account."""
    if not hasattr(torch._C, "_cuda_set_sync_debug_mode"):
        return Outcome.not_applicable("this build of PyTorch does not tell")
    training = Training(setup, setup.alone(), alone=True)
    training.take(WARM_UP)
    with _heard_synchronisations() as heard:
        training.take(STEPS_OF_BITS)
    # Those after the last step, which wait for its results, belong to none.
    a_step = len(heard) / STEPS_OF_BITS
    return Outcome.of(
        a_step <= SYNCHRONISATIONS_A_STEP,
        f"{len(heard)} warnings in {STEPS_OF_BITS} steps (waiting for an event gives none)",
        warnings=len(heard),
        steps=STEPS_OF_BITS,
    )


@contextmanager
def _heard_synchronisations() -> Iterator[list[warnings.WarningMessage]]:
    """A list that grows by a warning for every operation inside the block that waits for the card."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield heard
        finally:
            torch.cuda.set_sync_debug_mode("default")
    heard[:] = [warning for warning in heard if "synchroniz" in str(warning.message)]


def compiled(setup: Setup) -> Outcome:
    """What torch.compile takes and gains; where it fails, `model.compile: auto` does without."""
    plain = _step_seconds(Training(setup, setup.alone(), alone=True), setup.seconds)[1]
    try:
        first, fused = _step_seconds(Training(setup, setup.alone(compile="on"), alone=True), setup.seconds)
    except Exception as error:  # whatever a compiler raises
        line = (str(error).strip().splitlines() or [""])[0]
        return Outcome.not_applicable(
            f"torch.compile does not work here, training does without ({type(error).__name__}: {line})",
            step_seconds=plain,
        )
    return Outcome.of(
        True,
        f"compiled in {duration(first)}; a micro-batch takes {duration(fused)} instead of {duration(plain)}, "
        f"{plain / fused:.2f} times as fast",
        compile_seconds=first,
        step_seconds=plain,
        compiled_step_seconds=fused,
    )


def _step_seconds(training: Training, seconds: float) -> tuple[float, float]:
    """Seconds of the first steps, in which kernels are compiled, and of a later one."""
    start = time.perf_counter()
    training.take(WARM_UP)
    first = time.perf_counter() - start
    count = training.steps_in(seconds)
    return first, training.timed(count)[0] / count


def determinism(setup: Setup) -> Outcome:
    """Ten steps twice, with and without `train.deterministic`: the same bits or not, and at what cost."""
    same, seconds = {}, {}
    for deterministic in (False, True):
        with _deterministic(setup.device, deterministic):
            runs = [_weights_after(setup) for _ in range(2)]
        same[deterministic] = bool(torch.equal(runs[0][0], runs[1][0]))
        seconds[deterministic] = min(taken for _, taken in runs)
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


def _weights_after(setup: Setup) -> tuple[torch.Tensor, float]:
    """The weights after some steps, and what a step took."""
    training = Training(setup, setup.alone(), alone=True)
    warm_up = 1
    training.take(warm_up)
    seconds, _ = training.timed(STEPS_OF_BITS - warm_up)
    return training.state.flat.vector.detach().clone(), seconds / (STEPS_OF_BITS - warm_up)


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


def fix_cublas_workspace() -> None:
    """Give cuBLAS the workspaces that determinism needs; it looks once, at its first product of the process."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
