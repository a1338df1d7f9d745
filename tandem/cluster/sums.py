"""How one long vector is summed over hosts: in full precision, in fewer bits, or as two thin factors.

A sum is made in two halves, so that what a host sends does not grow with the number of hosts: each host sends
every other one its part of the vector and adds up the parts it gets (reduce-scatter), then sends its finished
part to all (all-gather). Rounding happens before each half, and every host decodes the same bytes, its own too,
so that all end with the same numbers bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from tandem.cluster.traffic import VALUES_PER_SCALE, ring_bytes

# Four bits hold the whole numbers -7 ... 7, written as 1 ... 15.
LARGEST, MIDDLE = 7, 8
# bfloat16 has 8 significant bits: a number this much larger is never rounded below the original.
ROUND_UP = 1 + 2**-8


class Sum(ABC):
    """Adds a vector up over hosts; may remember something between two sums."""

    def __init__(self) -> None:
        self._bytes = 0

    @abstractmethod
    def sum_(self, vector: Tensor) -> None:
        """Replace the vector by its sum over all hosts."""

    def tensors(self) -> dict[str, Tensor]:
        """What this host remembers."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember again what was saved."""
        assert not tensors, "nothing was ever remembered"

    def take_bytes(self) -> int:
        """Bytes handed over to be sent since this was last asked."""
        taken, self._bytes = self._bytes, 0
        return taken


class TwoHalves(Sum):
    """A sum whose parts travel in another number format."""

    remembers = False
    """Whether what rounding loses is added to the next vector."""

    def __init__(self, group: dist.ProcessGroup, length: int, device: torch.device) -> None:
        super().__init__()
        self._group = group
        self._host, hosts = group.rank(), group.size()
        # On the device, because an index that is a list has to be taken there at every use.
        self._others = torch.tensor([host for host in range(hosts) if host != self._host], device=device)
        # Every host's part holds whole stretches of values under one scale.
        self._part = -(-length // (hosts * VALUES_PER_SCALE)) * VALUES_PER_SCALE
        self._parts = torch.zeros(hosts, self._part, device=device)
        self._lost = torch.zeros(hosts - 1, self._part, device=device) if self.remembers else None
        self._lost_of_total = torch.zeros(1, self._part, device=device) if self.remembers else None

    @abstractmethod
    def encode(self, rows: Tensor) -> Tensor:
        """Rows of values as rows of bytes."""

    @abstractmethod
    def decode(self, rows: Tensor) -> Tensor:
        """The values that the bytes stand for."""

    def sum_(self, vector: Tensor) -> None:
        parts = self._parts
        parts.view(-1)[: len(vector)] = vector
        # A host's own part of its own vector does not travel, so it is not rounded either.
        encoded, _ = self._rounded(parts.index_select(0, self._others), self._lost)
        arrived = torch.empty_like(encoded)
        sizes = [int(host != self._host) for host in range(len(parts))]
        dist.all_to_all_single(arrived, encoded, sizes, sizes, group=self._group)
        total = parts[self._host] + self.decode(arrived).sum(0, keepdim=True)
        encoded_total, finished = self._rounded(total, self._lost_of_total)
        gathered = encoded_total.new_empty(len(parts), encoded_total.shape[1])
        dist.all_gather_single(gathered, encoded_total, group=self._group)
        self._bytes += 2 * encoded.nbytes
        parts.index_copy_(0, self._others, self.decode(gathered.index_select(0, self._others)))
        parts[self._host] = finished[0] if finished is not None else self.decode(encoded_total)[0]
        vector.copy_(parts.view(-1)[: len(vector)])

    def _rounded(self, rows: Tensor, lost: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Rows ready to travel and, if what they lose is remembered, as they will arrive."""
        if lost is None:
            return self.encode(rows), None
        rows += lost
        encoded = self.encode(rows)
        decoded = self.decode(encoded)
        torch.sub(rows, decoded, out=lost)
        return encoded, decoded

    def tensors(self) -> dict[str, Tensor]:
        if self._lost is None or self._lost_of_total is None:
            return {}
        return {"lost": self._lost, "lost_of_total": self._lost_of_total}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, kept in self.tensors().items():
            kept.copy_(tensors[name])


class BFloat16Sum(TwoHalves):
    """Half the bytes of float32; added up in float32, so that only what travels is rounded."""

    def encode(self, rows: Tensor) -> Tensor:
        return rows.bfloat16().view(torch.uint8)

    def decode(self, rows: Tensor) -> Tensor:
        return rows.view(torch.bfloat16).float()


class FourBitSum(TwoHalves):
    """Four bits a value and a scale for every stretch, with error feedback.

    The feedback is what makes four bits enough: an error is not lost but comes a step late.
    """

    remembers = True

    def encode(self, rows: Tensor) -> Tensor:
        stretches = rows.view(len(rows), -1, VALUES_PER_SCALE)
        # Rounded up to bfloat16, which has float32's range, so that no value is beyond the largest whole number.
        largest = torch.linalg.vector_norm(stretches, torch.inf, dim=-1, keepdim=True)
        scales = (largest * (ROUND_UP / LARGEST)).bfloat16()
        # Where all values are zero any factor will do.
        factors = scales.float().reciprocal_().nan_to_num_(posinf=0.0)
        # Adding the middle and half, then cutting, rounds and makes positive in one go.
        nibbles = (stretches * factors).add_(MIDDLE + 0.5).to(torch.uint8).flatten(1)
        pairs = nibbles.view(torch.int16)
        packed = (pairs >> 4).bitwise_or_(pairs).to(torch.uint8)
        return torch.cat([packed, scales.view(torch.uint8).flatten(1)], 1)

    def decode(self, rows: Tensor) -> Tensor:
        # Of each stretch there are half as many bytes as values, and the two of its scale.
        values = rows.shape[1] // (VALUES_PER_SCALE // 2 + 2) * (VALUES_PER_SCALE // 2)
        pairs = rows[:, :values].to(torch.int16)
        nibbles = (pairs << 4).bitwise_or_(pairs).bitwise_and_(0x0F0F).view(torch.uint8)
        scales = rows[:, values:].contiguous().view(torch.bfloat16).float()[..., None]
        stretches = nibbles.view(len(rows), -1, VALUES_PER_SCALE).float()
        return torch.addcmul(scales * -MIDDLE, stretches, scales).flatten(1)


class LowRankSum(Sum):
    """PyTorch's PowerSGD: every matrix travels as two factors of a few columns, with error feedback."""

    def __init__(self, group: dist.ProcessGroup, shapes: Sequence[torch.Size], rank: int, device: torch.device) -> None:
        super().__init__()
        self._shapes, self._device = shapes, device
        self._hosts = group.size()
        self._state: Any = PowerSGDState(
            group,
            matrix_approximation_rank=rank,
            # The hook refuses to compress its very first steps; two is the least it takes.
            start_powerSGD_iter=2,
            # Without it, a matrix of zeros would be divided by its own length.
            orthogonalization_epsilon=1e-8,
            # Compress whatever has more rows than the rank; the default would leave small matrices whole.
            min_compression_rate=1,
        )

    def sum_(self, vector: Tensor) -> None:
        sizes = [shape.numel() for shape in self._shapes]
        bucket = _WholeVector(
            vector, [part.view(s) for part, s in zip(torch.split(vector, sizes), self._shapes, strict=True)]
        )
        before = self._state.total_numel_after_compression
        vector.copy_(powerSGD_hook(self._state, cast(GradBucket, bucket)).wait())
        sent = self._state.total_numel_after_compression - before or len(vector)
        self._bytes += ring_bytes(sent * vector.element_size(), self._hosts)
        # The hook's result is a mean.
        vector *= self._hosts

    def tensors(self) -> dict[str, Tensor]:
        kept = {"errors": self._state.error_dict, "p": self._state.p_memory_dict, "q": self._state.q_memory_dict}
        return {
            **{name: memory[0] for name, memory in kept.items() if memory},
            "steps": torch.tensor(self._state.iter),
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        state = self._state
        for name, memory in (("errors", state.error_dict), ("p", state.p_memory_dict), ("q", state.q_memory_dict)):
            if name in tensors:
                memory[0] = tensors[name].to(self._device)
        state.iter = int(tensors["steps"])


class _WholeVector:
    """A vector in the shape of the bucket that PyTorch's hooks take."""

    def __init__(self, vector: Tensor, gradients: list[Tensor]) -> None:
        self._vector, self._gradients = vector, gradients

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> Tensor:
        return self._vector

    def gradients(self) -> list[Tensor]:
        return self._gradients
