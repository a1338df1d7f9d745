"""One process of two, each with a card: collectives, what NCCL refuses, and what remains when the peer is lost.

Arguments: rank, port. Rank 1 dies in the middle; rank 0 prints "done" if all was as it should be.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

# isort: off
from rehearsal.device import HungDeviceError, Rehearsal, rehearsed_cuda  # before torch
import pytest
import torch
import torch.distributed as dist
# isort: on


def collectives(rank: int) -> None:
    """Each gives what it gives on real cards."""
    x = torch.full((4,), float(rank + 1), device="cuda")
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 4
    work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
    assert work is not None
    work.wait()
    assert x.tolist() == [3.0] * 4
    gathered = torch.empty(4, device="cuda", dtype=torch.bfloat16)
    dist.all_gather_single(gathered, torch.full((2,), float(rank), device="cuda", dtype=torch.bfloat16))
    assert gathered.tolist() == [0.0, 0.0, 1.0, 1.0]
    listed = [torch.empty(1, device="cuda") for _ in range(2)]
    dist.all_gather(listed, torch.full((1,), float(rank), device="cuda"))
    assert [tensor.item() for tensor in listed] == [0.0, 1.0]
    scattered = torch.empty(2, device="cuda")
    dist.reduce_scatter_single(scattered, torch.arange(4.0, device="cuda"))
    assert scattered.tolist() == [4.0 * rank, 4.0 * rank + 2]
    swapped = torch.empty(2, device="cuda")
    dist.all_to_all_single(swapped, torch.arange(2.0, device="cuda") + 10 * rank)
    assert swapped.tolist() == [float(rank), float(rank) + 10]
    flags = torch.tensor([True, rank == 1, False], device="cuda")
    dist.all_reduce(flags)
    assert flags.tolist() == [True, True, False]
    assert flags.sum().item() == 2
    shared = torch.full((1,), float(rank), device="cuda")
    dist.broadcast(shared, 1)
    assert shared.item() == 1.0


def futures(rank: int) -> None:
    """A callback runs at once, in this thread, on device tensors."""
    x = torch.ones(2, device="cuda")
    calls: list[int] = []

    def called(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        calls.append(rank)
        return future.value()[0] * 10

    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    after = work.get_future().then(called)
    assert calls == [rank]
    assert after.wait().tolist() == [20.0, 20.0]


def refusals(rehearsal: Rehearsal) -> None:
    """NCCL refuses some dtypes, tensors that are not contiguous, and those of the CPU."""
    with pytest.raises(TypeError, match="not supported for NCCL process group: Short"):
        dist.all_reduce(torch.ones(2, device="cuda", dtype=torch.int16))
    with pytest.raises(ValueError, match="Tensors must be contiguous"):
        dist.all_reduce(torch.ones(4, 4, device="cuda")[:, 1])
    only_cards = dist.new_group([0, 1], backend="nccl")
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(1), group=only_cards)
    rehearsal.counts.clear()
    number = torch.ones(1)
    dist.all_reduce(number)
    dist.all_reduce(number.to("cuda"), group=only_cards)
    assert number.item() == 2.0
    assert rehearsal.counts.messages.total() == 1
    assert rehearsal.counts.launches == {"nccl_allreduce": 1}


def data_parallel(rank: int) -> None:
    """DistributedDataParallel sums over both."""
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 1).to("cuda")
    parallel = torch.nn.parallel.DistributedDataParallel(module, device_ids=[rank])
    parallel(torch.full((2, 3), float(rank + 1), device="cuda")).sum().backward()
    assert module.weight.grad is not None
    assert module.weight.grad.tolist() == [[3.0] * 3]


def lost_peer() -> None:
    """The host runs on until it waits for the card; control messages tell at once."""
    before, after = torch.Event("cuda"), torch.Event("cuda")
    before.record()
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    x.add_(1)
    dist.all_reduce(x)
    after.record()
    before.synchronize()
    assert not after.query()
    with pytest.raises(RuntimeError, match=r"Connection closed by peer|Connection reset|Broken pipe"):
        dist.all_reduce(torch.ones(1))
    for wait in (after.synchronize, torch.cuda.synchronize, x.tolist, x.sum().item, lambda: torch.ones(1).to("cuda")):
        with pytest.raises(HungDeviceError, match="the host waits for a device that will never answer"):
            wait()


def main(rank: int, port: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    with rehearsed_cuda(cards=2, package=Path(__file__).parent) as rehearsal:
        torch.cuda.set_device(rank)
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=60))
        assert dist.get_backend() == "cpu:gloo,cuda:nccl"
        collectives(rank)
        futures(rank)
        refusals(rehearsal)
        data_parallel(rank)
        if rank == 0:
            dist.recv(torch.ones(1), 1)
            lost_peer()
            print("done", flush=True)
        else:
            dist.send(torch.ones(1), 0)
    # The groups must not be taken down: the peer is gone.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
