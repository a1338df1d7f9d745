"""Sums of one long vector over hosts, whose parts travel in another number format.

A sum is made in two halves, so that what a host sends does not grow with the number of hosts: each host sends
every other one its part of the vector and adds up the parts it gets (reduce-scatter), then sends its finished
part to all (all-gather). Rounding happens before each half, and every host decodes the same bytes, its own too,
so that all end with the same numbers bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from tandem.cluster.exchange.traffic import VALUES_PER_SCALE


class VectorSum(ABC):
    """Sum of a vector over hosts, which may keep state, such as error feedback, between two sums."""

    def __init__(self) -> None:
        self._bytes = 0

    @abstractmethod
    def sum_(self, vector: Tensor) -> None:
        """Replace the vector by its sum over all hosts."""

    def state_tensors(self) -> dict[str, Tensor]:
        """State that this host must save to go on exactly."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up saved state."""
        assert not tensors, "there is no state to save"

    def skip_warm_up(self) -> None:  # noqa: B027, most sums have none
        """Make the next sum as later ones are made, for measurements."""

    def pop_sent_bytes(self) -> int:
        """Bytes handed over to be sent since the last call."""
        taken, self._bytes = self._bytes, 0
        return taken


class CompressedSum(VectorSum):
    """Reduce-scatter and all-gather of values in another number format."""

    error_feedback = False
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
        self._lost = torch.zeros(hosts - 1, self._part, device=device) if self.error_feedback else None
        self._lost_of_total = torch.zeros(1, self._part, device=device) if self.error_feedback else None

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
        """Encoded rows and, with error feedback, the rows as they will arrive."""
        if lost is None:
            return self.encode(rows), None
        rows += lost
        encoded = self.encode(rows)
        decoded = self.decode(encoded)
        torch.sub(rows, decoded, out=lost)
        return encoded, decoded

    def state_tensors(self) -> dict[str, Tensor]:
        if self._lost is None or self._lost_of_total is None:
            return {}
        return {"lost": self._lost, "lost_of_total": self._lost_of_total}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, kept in self.state_tensors().items():
            kept.copy_(tensors[name])
