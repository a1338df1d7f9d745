"""One rehearsed card: its memory, its random numbers, and the work that the host has given it and not waited for."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from rehearsal.counts import Counts

ALLOCATION_BYTES = 512
"""CUDA's caching allocator rounds every request up to this (kMinBlockSize in CUDACachingAllocator)."""


class HungDeviceError(AssertionError):
    """The host waits for a device that will never answer, because a peer of a collective is gone."""


class RaceError(AssertionError):
    """The host changed memory that the device was still reading."""


@dataclass(eq=False)
class Submitted:
    """Work in a card's queue."""

    action: Callable[[], object]
    """Completes it; run when a kernel or the host needs its result."""
    collective: bool
    """Kernels behind it wait for it; they need not wait for a copy to the host."""
    ordered: bool = True
    """On the current stream; an asynchronous collective is on NCCL's own until somebody waits for it."""
    done: bool = False


@dataclass
class PlannedFailure:
    """An allocation that is to fail: the `number`th from now of at least `above_bytes`."""

    number: int
    above_bytes: int


class Card:
    """State of the device cuda:index."""

    def __init__(self, index: int, physical: int, memory_bytes: int, counts: Counts, hung_on_lost_peer: bool) -> None:
        self.index, self.physical, self.memory_bytes = index, physical, memory_bytes
        self.uuid = card_uuid(physical)
        self.generator = torch.Generator().manual_seed(torch.initial_seed())
        self.allocated = self.peak = 0
        self.hung: str | None = None
        """The error of the transfer that will never end."""
        self.planned_failure: PlannedFailure | None = None
        self._counts, self._hung_on_lost_peer = counts, hung_on_lost_peer
        self._queue: list[Submitted] = []
        self._storages: dict[int, int] = {}
        self._lock = threading.RLock()

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.index)

    # Memory

    def hold(self, tensor: torch.Tensor) -> None:
        """Count the tensor's storage as memory of this card until the storage dies."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, -(-storage.nbytes() // ALLOCATION_BYTES) * ALLOCATION_BYTES
        with self._lock:
            # A storage that is known may have grown: torch.arange resizes an empty tensor.
            known = self._storages.get(key)
            more = size - (known or 0)
            if more > 0:
                self._refuse_if_full(storage.nbytes(), more)
            self._storages[key] = size
            self.allocated += more
            self.peak = max(self.peak, self.allocated)
        if known is None:
            weakref.finalize(storage, self._release, key).atexit = False

    def _release(self, key: int) -> None:
        with self._lock:
            self.allocated -= self._storages.pop(key)

    def _refuse_if_full(self, asked: int, size: int) -> None:
        planned, fails = self.planned_failure, self.allocated + size > self.memory_bytes
        if planned is not None and asked >= planned.above_bytes:
            planned.number -= 1
            if planned.number <= 0:
                self.planned_failure, fails = None, True
        if fails:
            free = max(self.memory_bytes - self.allocated, 0)
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {_size(size)}. GPU {self.index} has a total capacity of "
                f"{_size(self.memory_bytes)} of which {_size(free)} is free. Including non-PyTorch memory, this "
                f"process has {_size(self.allocated)} memory in use. Of the allocated memory {_size(self.allocated)} "
                "is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
            )

    # Random numbers

    @contextmanager
    def random_numbers(self) -> Iterator[None]:
        """Draw from this card's generator inside, leaving the CPU's as it was."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.generator.get_state())
        try:
            yield
        finally:
            self.generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)

    # The queue

    def submit(self, work: Submitted) -> None:
        """Put work at the end of the queue; the host runs on."""
        with self._lock:
            self._queue.append(work)

    def submitted(self) -> tuple[Submitted, ...]:
        """The queue of the current stream: what an event recorded now would wait for."""
        with self._lock:
            return tuple(work for work in self._queue if work.ordered)

    def finish_collectives(self) -> None:
        """Before a kernel: stream order puts the collectives that were submitted before it."""
        if self._queue:
            self.finish(tuple(work for work in self.submitted() if work.collective))

    def synchronise(self, kind: str, works: tuple[Submitted, ...] | None = None) -> None:
        """The host waits for the current stream (or for those works), which is counted; fails if that cannot end."""
        self._counts.synchronisations[f"{kind} {self._counts.place()}"] += 1
        works = self.submitted() if works is None else works
        self.finish(works)
        if not all(work.done for work in works):
            raise HungDeviceError(f"the host waits for a device that will never answer ({kind}): {self.hung}")

    def synchronise_all(self, kind: str) -> None:
        """The host waits for every stream of the card."""
        self.synchronise(kind, tuple(self._queue))

    def finish(self, works: tuple[Submitted, ...]) -> None:
        """Complete these works in order; a transfer whose peer is gone hangs the card and all that comes after."""
        with self._lock:
            for work in works:
                if work.done or self.hung is not None:
                    continue
                try:
                    work.action()
                except RuntimeError as error:
                    if work.collective and self._hung_on_lost_peer:
                        # NCCL would not raise: its kernel waits for ever, and so does whatever is queued behind it.
                        self.hung = str(error).splitlines()[0]
                        continue
                    raise
                finally:
                    work.done = self.hung is None
                    if work.done and work in self._queue:
                        self._queue.remove(work)


class Recorded:
    """An event in a card's queue: what comes before it, and the instant at which the card came to it."""

    def __init__(self, card: Card) -> None:
        self.card, self.works = card, card.submitted()
        self.seconds = time.perf_counter()
        if self.works:
            # Kernels behind the collectives finish them; the event's instant is then, not now.
            reached = Submitted(self._reach, collective=True)
            card.submit(reached)
            self.works = (*self.works, reached)

    def _reach(self) -> None:
        self.seconds = time.perf_counter()

    def synchronise(self, kind: str) -> None:
        """Wait until the card has come to this point of its queue."""
        self.card.synchronise(kind, self.works)

    def query(self) -> bool:
        """Whether the card has come to this point of its queue."""
        self.card.finish(self.works)
        return all(work.done for work in self.works)


def card_uuid(physical: int) -> uuid.UUID:
    """The card's identity: the same for every process of a host ($TANDEM_HOST, else its name) that sees the card."""
    host = os.environ.get("TANDEM_HOST") or socket.gethostname()
    return uuid.UUID(bytes=hashlib.sha256(f"{host} card {physical}".encode()).digest()[:16])


def _size(size: int) -> str:
    """Bytes as CUDA's allocator writes them (format_size in CUDACachingAllocator)."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
