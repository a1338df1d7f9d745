"""Durations, link rates and memory as the doctor tells them."""

from __future__ import annotations

from tandem.model.memory_estimate import MemoryEstimate
from tandem.report.figures import size

MINUTE, HOUR = 60, 3600


def time(seconds: float) -> str:
    """A duration in the unit that people would take."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 2 * MINUTE:
        return f"{seconds:.3g} s"
    return f"{seconds / MINUTE:.3g} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def rate(mbit: float) -> str:
    """A link's rate as people say it."""
    return f"{mbit / 1000:.3g} Gbit/s" if mbit >= 1000 else f"{mbit:.3g} Mbit/s"


def memory(estimate: MemoryEstimate) -> str:
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
