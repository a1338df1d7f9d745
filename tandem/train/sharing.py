"""One state for all processes: the first one reads it from disk, the others get it over the network.

So only the first host needs the run's directory; the others keep no more than their journals and what the way of
exchanging makes them remember for themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.world import World
from tandem.train.state import TrainState


def share_state(world: World, state: TrainState) -> None:
    """Give the first process's state to every process."""
    if world.size == 1:
        return
    tensors = {"model": state.model_tensors(), "optimizer": state.optimizer_tensors()}
    described = {
        part: {name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in named.items()}
        for part, named in tensors.items()
    }
    message = {"numbers": state.numbers(), "tensors": described}
    told = json.loads(world.told(json.dumps(message).encode()))
    if not world.agree(world.told(digest := _digest(tensors)) != digest):
        # Before the first step every process has drawn the same weights from the seed, on the same kind of machine.
        return
    received: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for part, named in told["tensors"].items():
        for name, (dtype, shape) in named.items():
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=world.device)
            if world.leads:
                tensor.copy_(tensors[part][name])
            dist.broadcast(tensor, 0)
            received[part][name] = tensor
    if not world.leads:
        state.restore(received["model"], received["optimizer"], told["numbers"])


def _digest(tensors: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    digest = hashlib.sha256()
    for named in tensors.values():
        for name, tensor in named.items():
            digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.digest()
