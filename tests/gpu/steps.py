"""Limits on what a training step may make a GPU do, and the faults of steps that exceed them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Every so many steps a plain all-reduce is taken apart into waiting and sending, with one message more.
from tandem.cluster.exchange.traffic import SAMPLED_EVERY

WAIT_FOR_RESULTS = "event monitor/device_clock.py"


def observed_steps(directory: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The steps that tests/gpu/observed.py has written."""
    steps: list[dict[str, Any]] = json.loads((directory / f"steps-{rank}.json").read_text())
    return steps


def faults(step: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each limit that a step exceeds."""
    waits = step["synchronisations"]
    # The first step has none before it to ask for.
    if step["totals"]["synchronisations"] != (step["step"] > 1):
        yield f"waits for the device: {waits}"
    if any(not wait.startswith(WAIT_FOR_RESULTS) for wait in waits):
        yield f"waits for something else than the results of the step before: {waits}"
    if any("pageable" in copy for copy in step["copies"]):
        yield f"copies from memory that is not pinned: {step['copies']}"
    if step["slow"]:
        yield f"computes in float64: {step['slow']}"
    messages = 1 + (step["step"] % SAMPLED_EVERY == 1)
    if step["totals"]["messages"] > messages:
        yield f"sends more than one control message: {step['messages']}"
    if "flash" not in step["attention"]:
        yield f"keeps the decoder's own attention from Flash: {step['attention']}"
