"""All weights of a model side by side in one vector, and the copy of the model that training steps go through.

One vector of weights and one of gradients make of a few hundred small tensors a single large one: the optimizer, the
gradient's norm, the exchange between processes and the cast to half precision are one kernel each instead of hundreds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tandem.model.translation_model import TranslationModel


class FlatWeights:
    """The float32 weights of a model as one vector; the model's own parameters become views into it."""

    def __init__(self, model: TranslationModel) -> None:
        parameters = {name: model.get_parameter(name) for name in model.parameter_order()}
        self.shapes = {name: parameter.shape for name, parameter in parameters.items()}
        self.vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters.values()]))
        self.gradient = torch.zeros_like(self.vector.detach())
        self.vector.grad = self.gradient
        for name, view in self.named(self.vector.detach()).items():
            parameters[name].data = view

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Views into a vector of this length, under the names of the weights."""
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


class WorkingCopy:
    """The model that steps are computed with: its half-precision weights are cast once a step, in one kernel.

    Micro-batches that are worked through in parallel need a model each, with gradients of its own; all of them share
    the same weights.
    """

    def __init__(self, model: TranslationModel, flat: FlatWeights, dtype: torch.dtype, copies: int = 1) -> None:
        self._flat = flat
        self._half = None if dtype == torch.float32 else torch.empty_like(flat.vector.detach(), dtype=dtype)
        weights = flat.named(flat.vector.detach() if self._half is None else self._half)
        self.models = [model.working_copy(weights).train() for _ in range(copies)]
        # Parameters are views into vectors of one layout, so their offsets are their places in it.
        self.leaves = [
            sorted(copy.parameters(), key=lambda parameter: parameter.storage_offset()) for copy in self.models
        ]
        """What backward leaves gradients at in each model, in the order of the vector."""

    def refresh(self) -> None:
        """Take up the weights as they are now."""
        if self._half is not None:
            self._half.copy_(self._flat.vector.detach())
