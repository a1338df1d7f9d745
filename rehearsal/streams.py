"""Events and streams of the rehearsal device: torch.Event, torch.Stream and their torch.cuda namesakes.

A card has one queue, whatever stream work is given to; an event keeps the instant and what the queue held at it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from rehearsal.card import Card, Recorded
from rehearsal.session import current

MILLISECONDS = 1000
NativeEvent, NativeStream = torch.Event, torch.Stream


class Event:
    """torch.Event of a rehearsed card; of another device, PyTorch's own is made instead."""

    def __new__(cls, device: Any = None, **options: Any) -> Any:
        if device is not None and torch.device(device).type != "cuda":
            return NativeEvent(device, **options)
        return super().__new__(cls)

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **options: Any) -> None:
        self._card = current().card(device)
        self._timed, self._recorded = enable_timing, None

    _recorded: Recorded | None

    @property
    def device(self) -> torch.device:
        return self._card.device

    def record(self, stream: Stream | None = None) -> None:
        """Put the event at the end of the card's queue."""
        self._recorded = Recorded(self._card if stream is None else stream.card)

    def wait(self, stream: Stream | None = None) -> None:
        """Later kernels wait for the event, which they do anyway: a card has one queue."""

    def query(self) -> bool:
        """Whether the card has come to the event."""
        return self._recorded is None or self._recorded.query()

    def synchronize(self) -> None:
        """The host waits for the event."""
        if self._recorded is not None:
            self._recorded.synchronise("event")

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`; as CUDA, refuses events that keep no time or were not reached."""
        if not (self._timed and end._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end._recorded is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return (end._recorded.seconds - self._recorded.seconds) * MILLISECONDS


class CudaEvent(Event):
    """torch.cuda.Event, which is of the current device."""

    def __new__(cls, enable_timing: bool = False, **options: Any) -> Any:
        return super().__new__(cls)

    def __init__(self, enable_timing: bool = False, **options: Any) -> None:
        super().__init__(None, enable_timing=enable_timing)


class Stream:
    """torch.Stream and torch.cuda.Stream of a rehearsed card."""

    def __new__(cls, device: Any = None, **options: Any) -> Any:
        if device is not None and not isinstance(device, int) and torch.device(device).type != "cuda":
            return NativeStream(device, **options)
        return super().__new__(cls)

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.card: Card = current().card(device)
        self.priority = priority

    @property
    def device(self) -> torch.device:
        return self.card.device

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to restore: whatever the stream, work goes into the card's queue."""

    def record_event(self, event: Event | None = None) -> Event:
        """A new event, or the given one, recorded now."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Later kernels wait for the event, which they do anyway: a card has one queue."""

    def wait_stream(self, stream: Stream) -> None:
        """Later kernels wait for what the other stream holds, which they do anyway."""

    def query(self) -> bool:
        """Whether the card has done all that it was given."""
        return Recorded(self.card).query()

    def synchronize(self) -> None:
        """The host waits for the card."""
        self.card.synchronise("stream")


def current_stream(device: Any = None) -> Stream:
    """torch.cuda.current_stream and default_stream."""
    return Stream(device)


def use_stream(stream: Stream | None) -> AbstractContextManager[Any]:
    """torch.cuda.stream: work inside goes to that stream."""
    return nullcontext(stream)
