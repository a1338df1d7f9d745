"""Broadcast of the training state: the first process reads it from disk, the others get it over the network.

So only the first host needs the run's directory; the others keep their journals and the state of the exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.world import World
from tandem.training.train_state import TrainState


def broadcast_state(world: World, state: TrainState) -> None:
    """Overwrite every process's state with that of the first."""
    if world.size == 1:
        return
    tensors = state.tensors()
    described = {
        part: {name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in named.items()}
        for part, named in tensors.items()
    }
    numbers = state.numbers()
    first = world.broadcast({"numbers": numbers, "tensors": described})
    if len(set(world.gather(f"{_digest(tensors)} {numbers}"))) == 1:
        # Before the first step every process has drawn the same weights from the seed, on the same kind of machine.
        return
    received: dict[str, dict[str, Tensor]] = {}
    for part, named in first["tensors"].items():
        received[part] = {}
        for name, (dtype, shape) in named.items():
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=world.device)
            if world.is_leader:
                tensor.copy_(tensors[part][name])
            dist.broadcast(tensor, 0)
            received[part][name] = tensor
    if not world.is_leader:
        state.restore(received, first["numbers"])


def _digest(tensors: Mapping[str, Mapping[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for named in tensors.values():
        for name, tensor in named.items():
            digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
