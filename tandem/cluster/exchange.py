"""How gradients cross between processes: summed over all of them, once a step, during the last backward pass."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from tandem.cluster.world import World


class Bucket(Protocol):
    """Some gradients that DDP has laid side by side, ready to be exchanged."""

    def buffer(self) -> Tensor: ...


class AllReduce:
    """DistributedDataParallel with a plain sum: every process ends a step with the gradient of the global batch.

    DDP's own average over processes would weigh a short micro-batch like a long one; the loss is divided by the
    global token count instead, so a sum is exact however the micro-batches were dealt.
    """

    def __init__(self, module: nn.Module, world: World) -> None:
        self._bytes = 0
        self._last_launch = 0.0
        self._ddp: DistributedDataParallel | None = None
        self.module = module
        if world.size > 1:
            self._ddp = DistributedDataParallel(module, forward_sync_buffers=False, gradient_as_bucket_view=True)
            # A lambda, because DDP insists on the exact class in the hook's annotations, which no type checker knows.
            self._ddp.register_comm_hook(None, lambda _state, bucket: self._sum_bucket(bucket))
            self.module = self._ddp

    def only_when(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients in this backward pass only if it is the step's last on this process."""
        if self._ddp is None or last:
            return nullcontext()
        return self._ddp.no_sync()

    def take_bytes(self) -> int:
        """Bytes of gradients handed over for exchange since this was last asked."""
        taken, self._bytes = self._bytes, 0
        return taken

    def exposed_seconds(self, backward_end: float) -> float:
        """Time between the start of the last exchange and the end of backward: nothing was left to hide behind."""
        return max(backward_end - self._last_launch, 0.0) if self._ddp is not None else 0.0

    def _sum_bucket(self, bucket: Bucket) -> Future[Tensor]:
        self._bytes += bucket.buffer().nbytes
        self._last_launch = time.perf_counter()
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        assert work is not None
        future: Future[list[Tensor]] = work.get_future()
        return future.then(_first_value)


def _first_value(future: Future[list[Tensor]]) -> torch.Tensor:
    return future.value()[0]
