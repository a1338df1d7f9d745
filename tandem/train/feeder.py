"""Micro-batches ready for the device: read and padded when they are wanted, or one ahead where a GPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import torch

from tandem.cluster.world import World
from tandem.model.batch import PackedBatch
from tandem.train.batches import Batches, GlobalBatch, MicroBatch


@dataclass(frozen=True)
class Portion:
    """What one forward and backward pass of this process works on."""

    batch: GlobalBatch
    micro_batch: MicroBatch
    packed: PackedBatch
    first: bool
    """Whether it begins this process's share of the step."""
    last: bool


class Feeder:
    """Reads and pads what is asked for, when it is asked for.

    Where the same processor computes, nothing is gained by doing it earlier.
    """

    pinned = False

    def __init__(self, batches: Batches, world: World) -> None:
        self.batches, self._world = batches, world

    def fetch(self, step: int) -> GlobalBatch:
        """The global batch of a step."""
        return self.batches.at(step)

    def portions(self, batch: GlobalBatch, parts: int) -> Iterator[Portion]:
        """This process's share of a step, each micro-batch in so many parts."""
        share = batch.share(self._world.rank, self._world.size)
        split = [part for micro_batch in share for part in micro_batch.split(parts)]
        for place, part in enumerate(split):
            packed = self.batches.packed(part, pinned=self.pinned)
            yield Portion(batch, part, packed, first=place == 0, last=place == len(split) - 1)


class Prefetcher(Feeder):
    """Reads and pads the next portion in a thread while the device works on this one, into pinned memory."""

    pinned = True

    def __init__(self, batches: Batches, world: World) -> None:
        super().__init__(batches, world)
        # The current device is a thread's own: without a word, pinning memory would make a context on card 0.
        self._thread = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix="prefetch",
            initializer=torch.cuda.set_device,
            initargs=(world.device,),
        )
        self._source: Iterator[Portion] = iter(())
        self._ahead: Future[Portion] | None = None
        self._parts, self._next_step = 1, 0
        self._begun: Portion | None = None

    def fetch(self, step: int) -> GlobalBatch:
        if self._ahead is None or step != self._next_step:
            self._source = (portion for each in count(step) for portion in self._of_step(each))
            self._ahead = self._thread.submit(next, self._source)
        self._begun = self._taken()
        self._next_step = step + 1
        return self._begun.batch

    def portions(self, batch: GlobalBatch, parts: int) -> Iterator[Portion]:
        portion, self._begun = self._begun, None
        if portion is None or portion.batch is not batch or parts != self._parts:
            # A step that is repeated, or one that nobody fetched: what is under way belongs to another.
            self._parts, self._ahead = parts, None
            yield from super().portions(batch, parts)
            return
        while True:
            yield portion
            if portion.last:
                return
            portion = self._taken()

    def _of_step(self, step: int) -> Iterator[Portion]:
        return super().portions(super().fetch(step), self._parts)

    def _taken(self) -> Portion:
        """What the thread has ready; it goes on with the next."""
        assert self._ahead is not None
        portion = self._ahead.result()
        self._ahead = self._thread.submit(next, self._source)
        return portion


def make_feeder(batches: Batches, world: World) -> Feeder:
    """The feeder for this process's device."""
    return (Prefetcher if world.device.type == "cuda" else Feeder)(batches, world)
