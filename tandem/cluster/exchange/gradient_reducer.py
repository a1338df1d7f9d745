"""Gradients of several backward passes added up in one flat float32 vector, and summed over processes on the way.

What `DistributedDataParallel` does, for weights in half precision and a gradient in full: buckets of parameters are
added to the vector as soon as backward is done with them, in one kernel for hundreds of tensors, and in a step's last
pass each bucket then travels while backward still computes the next. The layout of buckets never changes, and with it
the order in which processes add: a resumed run rounds like one left alone.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tandem.cluster.exchange.traffic import ring_bytes
from tandem.model.memory_estimate import BUCKET_BYTES
from tandem.monitor.device_clock import Instant, now

# The first bucket is small, as DDP's, so that the network begins early.
FIRST_BUCKET_BYTES = 1 << 20


def bucket_lengths(lengths: Sequence[int]) -> list[int]:
    """How many parameters each bucket takes, counted from the end of the vector, where backward begins."""
    counts, size, limit = [0], 0, FIRST_BUCKET_BYTES
    for length in reversed(lengths):
        if size >= limit:
            counts.append(0)
            size, limit = 0, BUCKET_BYTES
        counts[-1] += 1
        size += length * torch.float32.itemsize
    return counts


def bucket_shares(shapes: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Shares of a gradient of these shapes by bucket, in the order in which backward comes to them."""
    remaining = [math.prod(shape) for shape in shapes]
    sizes, whole = [], sum(remaining)
    for count in bucket_lengths(remaining):
        sizes.append(sum(remaining[-count:]))
        del remaining[-count:]
    return tuple(size / whole for size in sizes)


@dataclass
class Bucket:
    """Neighbouring parameters whose gradients are added and exchanged together."""

    copies: list[list[nn.Parameter]]
    """The same parameters of each copy of the model, through which passes run in parallel."""
    part: Tensor
    """Their stretch of the flat gradient."""
    missing: int = 0
    """Parameters that backward has not come to yet in these passes."""

    def collect(self, first: bool, passes: int) -> None:
        """Move the parameters' gradients into the vector, over what is there or added to it: pass after pass.

        So the sum is rounded as if the passes had come one after the other, whichever was done first.
        """
        for number, parameters in enumerate(self.copies[:passes]):
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            for parameter in parameters:
                parameter.grad = None
            if len(gradients) < len(parameters):
                # Backward did not get here: what this process contributes is going to be thrown away by all.
                self.part.zero_()
                return
            _move(gradients, self.part, overwrite=first and not number)


def _move(gradients: list[Tensor], part: Tensor, *, overwrite: bool) -> None:
    """Write the gradients into their stretch of the vector, over what is there or added to it."""
    if part.is_cuda:
        # Two kernels instead of one or two for each gradient.
        flat = [gradient.flatten() for gradient in gradients]
        together = torch.cat(flat) if len(flat) > 1 else flat[0]
        part.copy_(together) if overwrite else part.add_(together)
        return
    # A processor would get a vector of the model's size anew each time, page by page.
    stretches = torch.split(part, [gradient.numel() for gradient in gradients])
    places = [stretch.view(gradient.shape) for stretch, gradient in zip(stretches, gradients, strict=True)]
    if overwrite:
        torch._foreach_copy_(places, gradients)
    else:
        torch._foreach_add_(places, gradients)


@dataclass
class Pass:
    """What backward passes, one or several in parallel, have to do with the gradients they find."""

    first: bool
    exchanges: bool
    passes: int
    """How many there are."""
    closed: int = 0
    """Buckets that are in the vector already."""
    works: list[dist.Work] = field(default_factory=list)
    last_launch: Instant | None = None
    """When the newest bucket began to travel, after which backward had nothing left to hide behind."""


class GradientReducer:
    """Adds gradients into a flat vector, and sums it over a process group in the passes that ask for it."""

    def __init__(
        self,
        leaves: Sequence[Sequence[nn.Parameter]],
        gradient: Tensor,
        group: dist.ProcessGroup | None,
        device: torch.device,
    ) -> None:
        self._group, self._device = group, device
        self._arriving = threading.Lock()
        """Passes that run in parallel come to a bucket in threads of their own."""
        self.gradient = gradient
        self.bytes = 0
        """Sent by this process, by calculation."""
        self._buckets: list[Bucket] = []
        lengths, end = [leaf.numel() for leaf in leaves[0]], len(gradient)
        for count in bucket_lengths(lengths):
            first = len(lengths) - count
            start = end - sum(lengths[first:])
            copies = [list(copy[first : len(lengths)]) for copy in leaves]
            self._add_bucket(Bucket(copies, gradient[start:end]))
            del lengths[first:]
            end = start
        self._pass = Pass(first=True, exchanges=False, passes=1)

    def _add_bucket(self, bucket: Bucket) -> None:
        number = len(self._buckets)
        self._buckets.append(bucket)
        # Hooks are kept by C++, where the garbage collector does not see that they close a circle: if they held the
        # reducer, or the bucket, weights and gradient of a trial would stay on the card for the rest of the run.
        reducer = weakref.ref(self)

        def arrived(_: Tensor) -> None:
            if (alive := reducer()) is not None:
                alive._arrived(alive._buckets[number])

        for parameters in bucket.copies:
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]

    def expect(self, *, first: bool, exchanges: bool, passes: int) -> None:
        """Get ready for so many backward passes in parallel: the step's first overwrite the vector, later ones add."""
        self._pass = Pass(first, exchanges and self._group is not None, passes)
        for bucket in self._buckets:
            bucket.missing = sum(len(parameters) for parameters in bucket.copies[:passes])
            for parameters in bucket.copies:
                for parameter in parameters:
                    parameter.grad = None

    def finish(self) -> Instant | None:
        """Wait until the vector holds what it should; when the last bucket began to travel, if any did.

        A pass that broke off sends what is missing, too: the other processes wait for it.
        """
        for bucket in self._buckets[self._pass.closed :]:
            self._close(bucket)
        for work in self._pass.works:
            work.wait()
        return self._pass.last_launch

    def sum_all(self) -> None:
        """Sum the whole vector over the group now, after passes that exchanged nothing."""
        self._start_sum(self.gradient).wait()

    def _arrived(self, bucket: Bucket) -> None:
        with self._arriving:
            bucket.missing -= 1
            # In order, whatever order gradients come in: every process must start the same sums one after the other.
            while self._pass.closed < len(self._buckets) and not self._buckets[self._pass.closed].missing:
                self._close(self._buckets[self._pass.closed])

    def _close(self, bucket: Bucket) -> None:
        # Memory may run out here; then the bucket is still to be closed, with nothing in it, when the pass is finished.
        bucket.collect(self._pass.first, self._pass.passes)
        if self._pass.exchanges:
            self._pass.last_launch = now(self._device)
            self._pass.works.append(self._start_sum(bucket.part))
        self._pass.closed += 1

    def _start_sum(self, vector: Tensor) -> dist.Work:
        assert self._group is not None
        self.bytes += ring_bytes(vector.nbytes, self._group.size())
        work: dist.Work | None = dist.all_reduce(vector, group=self._group, async_op=True)
        assert work is not None
        return work
