"""Timestamps of a device's work: the host's clock on a processor, timed CUDA events on a GPU.

A GPU works through its stream asynchronously: a timestamp there is an event in the stream, and two of them can be
compared once the device has passed both. Events in one stream never overlap, so the times between them add up as on
the host. (The part for GPUs was never run on one.)
"""

from __future__ import annotations

import time
from typing import TypeAlias

import torch

Instant: TypeAlias = float | torch.Event


def now(device: torch.device) -> Instant:
    """A timestamp at this point of the device's work."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.Event(device, enable_timing=True)
    event.record()
    return event


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all that was submitted to it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wait_for(instant: Instant) -> None:
    """Wait until a GPU has passed a timestamp; on a processor it has passed already."""
    if not isinstance(instant, float):
        instant.synchronize()


def is_past(instant: Instant) -> bool:
    """Whether a GPU has passed a timestamp, without waiting for it."""
    return isinstance(instant, float) or instant.query()


def seconds_between(start: Instant, end: Instant) -> float:
    """Time from one timestamp to another; a GPU must have passed both."""
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    assert isinstance(start, torch.Event)
    assert isinstance(end, torch.Event)
    return start.elapsed_time(end) / 1000
