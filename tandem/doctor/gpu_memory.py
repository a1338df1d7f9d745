"""GPU memory of a run: how a step is cut into micro-batches, what that needs on each card, and what would fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tandem.config import Config
from tandem.errors import TandemError
from tandem.model.memory_estimate import MemoryEstimate, largest_tokens, run_memory
from tandem.units import size

# A strategy between hosts may keep the gradient as it was, what rounding left over, and the weights of a round's start.
EXCHANGE_VECTORS = 3


@dataclass(frozen=True)
class Batching:
    """How a step is cut up."""

    tokens: int
    """Most tokens on either side of a micro-batch."""
    micro_batches: int
    """Micro-batches in a step, dealt out to the processes."""


def batching_on(config: Config, vocab_size: int, memory_bytes: int, processes: int) -> Batching:
    """Micro-batches as the settings have them; `auto` the largest that fit, equally many a process."""
    batch = config.batch
    if batch.tokens == "auto":
        longest = config.model.max_length
        fitting = max(min(largest_tokens(config, vocab_size, memory_bytes), batch.step_tokens), longest)
        each = math.ceil(math.ceil(batch.step_tokens / fitting) / processes)
        return Batching(max(batch.step_tokens // (each * processes), longest), each * processes)
    if batch.micro_batches < processes:
        tokens = batch.tokens * batch.micro_batches // processes
        raise TandemError(
            f"batch.micro_batches: {batch.micro_batches} cannot keep {processes} processes busy; "
            f"batch.micro_batches={processes} batch.tokens={tokens} makes steps of about the same size"
        )
    return Batching(batch.tokens, batch.micro_batches)


def needed_and_fitting(
    config: Config, vocab_size: int, memory_bytes: int, batching: Batching, hosts: int
) -> tuple[MemoryEstimate, Batching | None]:
    """Memory that a process needs, and the largest micro-batches that fit, for steps as large; None if none fit."""
    needed = run_memory(config, vocab_size, batching.tokens, exchange_vectors=EXCHANGE_VECTORS if hosts > 1 else 0)
    tokens = largest_tokens(config, vocab_size, memory_bytes)
    if not tokens:
        return needed, None
    return needed, Batching(tokens, math.ceil(batching.tokens * batching.micro_batches / tokens))


def too_little_memory(name: str, memory: MemoryEstimate, there: int, fitting: Batching | None) -> str:
    """What to say of a card that cannot hold the training, and of the settings with which it could."""
    need = f"{name}: training needs {size(memory.total)} on a GPU, which has {size(there)}"
    if fitting is None:
        return f"{need}, too little for any micro-batch: take a smaller model or a larger card"
    return f"{need}: set batch.tokens={fitting.tokens} batch.micro_batches={fitting.micro_batches}"


def memory_text(estimate: MemoryEstimate) -> str:
    """What training needs on a GPU, with the parts that it is made of."""
    model = estimate.weights + estimate.working_copy + estimate.gradient + estimate.optimizer
    passing = estimate.activation_gradients + estimate.gradients_in_flight + estimate.exchange_buffers
    parts = {
        "weights, gradient and Adam": model,
        "activations": estimate.activations,
        "logits": estimate.logits,
        "gradients in flight and exchange": passing,
        "CUDA": estimate.context,
    }
    told = ", ".join(f"{name} {size(part)}" for name, part in parts.items())
    return f"{size(estimate.total)} ({told})"
