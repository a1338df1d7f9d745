"""powersgd: every gradient matrix crosses between hosts as two factors of a few columns, with error feedback.

`auto` does not weigh it: at the traffic of local steps it loses more quality (docs/slow-networks.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from tandem.cluster.exchange.strategy import Shapes, Strategy, values_in
from tandem.cluster.exchange.traffic import ring_bytes
from tandem.cluster.exchange.vector_sum import VectorSum
from tandem.config import ExchangeConfig
from tandem.model.memory_estimate import FLOAT32

# PyTorch's PowerSGD sums its first vectors whole; two is the least it takes.
WHOLE_SUMS = 2


class PowerSgdSum(VectorSum):
    """PyTorch's PowerSGD: every matrix travels as two factors of a few columns, with error feedback."""

    def __init__(self, group: ProcessGroup, shapes: Sequence[Sequence[int]], rank: int, device: torch.device) -> None:
        super().__init__()
        self._shapes, self._device = [torch.Size(shape) for shape in shapes], device
        self._hosts = group.size()
        self._state: Any = PowerSGDState(
            group,
            matrix_approximation_rank=rank,
            start_powerSGD_iter=WHOLE_SUMS,
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
        vector.copy_(powerSGD_hook(self._state, cast(Any, bucket)).wait())
        sent = self._state.total_numel_after_compression - before or len(vector)
        self._bytes += ring_bytes(sent * vector.element_size(), self._hosts)
        # The hook's result is a mean.
        vector *= self._hosts

    def state_tensors(self) -> dict[str, Tensor]:
        kept = {"errors": self._state.error_dict, "p": self._state.p_memory_dict, "q": self._state.q_memory_dict}
        return {
            **{name: memory[0] for name, memory in kept.items() if memory},
            "steps": torch.tensor(self._state.iter),
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        state = self._state
        for name, memory in (("errors", state.error_dict), ("p", state.p_memory_dict), ("q", state.q_memory_dict)):
            if name in tensors:
                memory[0] = tensors[name].to(self._device)
        state.iter = int(tensors["steps"])

    def skip_warm_up(self) -> None:
        self._state.iter = WHOLE_SUMS


class _WholeVector:
    """The flat gradient behind the interface of DDP's GradBucket, which PyTorch's communication hooks take."""

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


class PowerSgdStrategy(Strategy):
    """Sum between hosts of low-rank factors."""

    keeps_state = True
    grows_with_length = False

    def payload_bytes(self, settings: ExchangeConfig, shapes: Shapes) -> int:
        values = 0
        for shape in shapes:
            length = values_in([shape])
            # A tensor of more dimensions than two is one matrix of as many rows as its first has entries.
            factors = settings.powersgd_rank * (shape[0] + length // shape[0])
            values += min(factors, length) if len(shape) > 1 else length
        return FLOAT32 * values

    def make_sum(
        self, group: ProcessGroup, settings: ExchangeConfig, shapes: Shapes, device: torch.device
    ) -> VectorSum:
        return PowerSgdSum(group, shapes, settings.powersgd_rank, device)


STRATEGY = PowerSgdStrategy()
