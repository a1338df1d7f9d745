"""Micro-batches ready for the device: read and padded when they are wanted, or one ahead where a GPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import torch

from tandem.cluster.world import World
from tandem.model.batch import PackedBatch
from tandem.training.batches import Batches, GlobalBatch, MicroBatch


@dataclass(frozen=True)
class LoadedMicroBatch:
    """What one forward and backward pass of this process works on."""

    batch: GlobalBatch
    micro_batch: MicroBatch
    packed: PackedBatch
    first: bool
    """Whether it begins this process's share of the step."""
    last: bool


class MicroBatchLoader:
    """Reads and pads micro-batches when they are asked for: earlier gains nothing where the same processor computes."""

    pinned = False

    def __init__(self, batches: Batches, world: World) -> None:
        self.batches, self._world = batches, world

    def fetch(self, step: int) -> GlobalBatch:
        """The global batch of a step."""
        return self.batches.at(step)

    def micro_batches(self, batch: GlobalBatch, parts: int) -> Iterator[LoadedMicroBatch]:
        """This process's share of a step, each micro-batch in so many parts."""
        share = batch.share(self._world.rank, self._world.size)
        split = [part for micro_batch in share for part in micro_batch.split(parts)]
        for place, part in enumerate(split):
            packed = self.batches.packed(part, pinned=self.pinned)
            yield LoadedMicroBatch(batch, part, packed, first=place == 0, last=place == len(split) - 1)


class PrefetchingLoader(MicroBatchLoader):
    """Loads the next micro-batch in a thread, into pinned memory, while the device works on this one."""

    pinned = True

    def __init__(self, batches: Batches, world: World) -> None:
        super().__init__(batches, world)
        # A thread has a current device of its own: otherwise pinning memory would make a context on card 0.
        self._thread = ThreadPoolExecutor(1, "prefetch", initializer=torch.cuda.set_device, initargs=(world.device,))
        self._stream: Iterator[LoadedMicroBatch] = iter(())
        self._next_step, self._parts = 0, 1
        self._first: LoadedMicroBatch | None = None

    def fetch(self, step: int) -> GlobalBatch:
        if step != self._next_step:
            self._stream = self._read_ahead(step)
        self._first = next(self._stream)
        self._next_step = step + 1
        return self._first.batch

    def micro_batches(self, batch: GlobalBatch, parts: int) -> Iterator[LoadedMicroBatch]:
        loaded, self._first = self._first, None
        if loaded is None or loaded.batch is not batch or parts != self._parts:
            # A step that is repeated, or that was not fetched: the thread has loaded something else.
            self._next_step, self._parts = 0, parts
            yield from super().micro_batches(batch, parts)
            return
        yield loaded
        while not loaded.last:
            loaded = next(self._stream)
            yield loaded

    def _read_ahead(self, first_step: int) -> Iterator[LoadedMicroBatch]:
        """All micro-batches from a step on, each loaded while the one before it is in use."""
        load = super().micro_batches
        wanted = (loaded for step in count(first_step) for loaded in load(self.batches.at(step), self._parts))
        ahead = self._thread.submit(next, wanted)
        while True:
            loaded = ahead.result()
            ahead = self._thread.submit(next, wanted)
            yield loaded


def make_loader(batches: Batches, world: World) -> MicroBatchLoader:
    """The loader for this process's device."""
    return (PrefetchingLoader if world.device.type == "cuda" else MicroBatchLoader)(batches, world)
