"""The rehearsal under way: which cards this process sees, and where its operators are counted."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from rehearsal.build import library
from rehearsal.card import Card, PlannedFailure
from rehearsal.counts import Counts

INVALID_DEVICE = "CUDA error: invalid device ordinal"


@dataclass(frozen=True)
class Model:
    """The kind of card that is rehearsed."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal under way, as `rehearsed_cuda` yields it."""

    model: Model
    physical_cards: int
    """Cards of the host, visible to this process or not."""
    cards: tuple[Card, ...]
    """Those that CUDA_VISIBLE_DEVICES lets this process see, in its order."""
    counts: Counts

    def card(self, device: torch.device | str | int | None = None) -> Card:
        """The card of a device; without an index, this thread's current one."""
        index = device if isinstance(device, int) else None if device is None else torch.device(device).index
        index = library().rehearsal_current_device() if index is None else index
        if not self.cards:
            raise RuntimeError("No CUDA GPUs are available")
        if not 0 <= index < len(self.cards):
            raise torch.AcceleratorError(INVALID_DEVICE)
        return self.cards[index]

    def fail_allocation(self, number: int = 1, above_bytes: int = 0, card: int = 0) -> None:
        """Make the `number`th allocation from now of at least `above_bytes` fail as if the card's memory were full."""
        self.cards[card].planned_failure = PlannedFailure(number, above_bytes)


_current: Rehearsal | None = None


def current() -> Rehearsal:
    """The rehearsal under way."""
    assert _current is not None, "a tensor of the rehearsal device outlived its rehearsal"
    return _current


def begin(rehearsal: Rehearsal | None) -> None:
    """Make this the rehearsal under way; None ends it."""
    global _current
    assert rehearsal is None or _current is None, "one rehearsal at a time"
    _current = rehearsal
    library().rehearsal_set_cards(0 if rehearsal is None else len(rehearsal.cards))


def visible_cards(physical_cards: int) -> list[int]:
    """Physical indices that CUDA_VISIBLE_DEVICES names, up to the first that does not exist, as CUDA reads it."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(physical_cards))
    visible: list[int] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if not word.isdecimal() or int(word) >= physical_cards or int(word) in visible:
            break
        visible.append(int(word))
    return visible
