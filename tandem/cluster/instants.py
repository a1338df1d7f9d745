"""Moments on the clock of the device that does the work.

A CPU's work is done when the call returns, so the host's clock tells. A GPU works through its queue behind the
host's back: a moment there is an event in that queue, and two of them can be compared once the device has passed
both. Events in one queue never overlap, so stretches between them add up as on the host.
(The part for GPUs was never run on one.)
"""

from __future__ import annotations

import time
from typing import TypeAlias

import torch

Instant: TypeAlias = float | torch.Event


def now(device: torch.device) -> Instant:
    """This moment of the device's work."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.Event(device, enable_timing=True)
    event.record()
    return event


def finish(device: torch.device) -> None:
    """Let a GPU come to the end of its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wait_for(instant: Instant) -> None:
    """Wait until a GPU has come to a moment; on a processor it has passed already."""
    if not isinstance(instant, float):
        instant.synchronize()


def is_past(instant: Instant) -> bool:
    """Whether a GPU has come to a moment, without waiting for it."""
    return isinstance(instant, float) or instant.query()


def seconds_between(start: Instant, end: Instant) -> float:
    """Time from one moment to another; a GPU must have passed both."""
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    assert isinstance(start, torch.Event)
    assert isinstance(end, torch.Event)
    return start.elapsed_time(end) / 1000
