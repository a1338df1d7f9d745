"""The tensor of the rehearsal device: it claims to live on cuda:N and holds a CPU tensor that really computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from rehearsal import rules
from rehearsal.card import Card
from rehearsal.session import current


class RehearsedTensor(torch.Tensor):
    """A tensor of a rehearsed card; `host` holds its values."""

    host: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, host: torch.Tensor, card: Card) -> RehearsedTensor:
        card.hold(host)
        tensor: RehearsedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device=card.device,
        )
        tensor.host = host
        return tensor

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.host!r} on {self.device}"

    def __deepcopy__(self, memo: dict[int, Any]) -> RehearsedTensor:
        """As Tensor.__deepcopy__: views of one storage stay views of one (new) storage."""
        if id(self) in memo:
            known: RehearsedTensor = memo[id(self)]
            return known
        with torch.no_grad():
            new = RehearsedTensor(copy.deepcopy(self.host, memo), current().card(self.device))
        for name, value in self.__dict__.items():
            if name != "host":
                setattr(new, name, copy.deepcopy(value, memo))
        new.requires_grad_(self.requires_grad)
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        memo[id(self)] = new
        return new

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        """Marks a wrapper for nn.Module.to, which then keeps the identity of parameters, as it does on CUDA."""
        return ["host"], self.device

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], device: Any, size: Any, stride: Any) -> RehearsedTensor:
        return RehearsedTensor(inner["host"], current().card(device))

    def become(self, other: RehearsedTensor) -> None:
        """Take the other's shape, dtype and storage."""
        with torch._C._DisableTorchDispatch():
            torch.ops.aten.set_data(self, other)
        self.host = other.host

    @property
    def data(self) -> Any:
        """The tensor without its history; assigned, as nn.Module.to does on CUDA, what the tensor shall hold."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, RehearsedTensor):
            raise NotImplementedError(
                "the rehearsal device cannot move a tensor by tensor.data = other: use .to(device)"
            )
        self.become(value)

    # Methods of torch.Tensor that read memory without asking the dispatcher

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise rules.no_numpy(self)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise rules.no_numpy(self)

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.host.untyped_storage()

    def record_stream(self, stream: object) -> None:
        """Memory is never used again too early here."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # The operators need the tensor, so it cannot need them before it is there.
        from rehearsal.operators import dispatch

        return dispatch(func, args, kwargs or {})


def host_of(value: Any) -> Any:
    """The CPU tensor behind a rehearsed one; anything else as it is."""
    return value.host if isinstance(value, RehearsedTensor) else value


def map_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the tensors in an operator's arguments or results (lists, tuples and dicts of anything)."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(function, entry) for entry in value])
    if isinstance(value, dict):
        return {key: map_tensors(function, entry) for key, entry in value.items()}
    return value


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """The tensors in an operator's arguments."""
    found: list[torch.Tensor] = []
    map_tensors(found.append, values)
    return found
