"""All weights of a model side by side in one vector, and the copy of the model that training steps go through.

One vector of weights and one of gradients make of a few hundred small tensors a single large one: the optimizer, the
gradient's norm, the exchange between processes and the cast to half precision are one kernel each instead of hundreds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from tandem.model.translation_model import TranslationModel


class FlatWeights:
    """The float32 weights of a model as one vector; the model's own parameters become views into it.

    Frozen weights have a vector to themselves, which neither an optimizer nor an exchange ever sees.
    """

    def __init__(self, model: TranslationModel, frozen: Collection[str] = ()) -> None:
        parameters = {name: model.get_parameter(name) for name in model.parameter_order()}
        shapes = {name: parameter.shape for name, parameter in parameters.items()}
        self.shapes = {name: shape for name, shape in shapes.items() if name not in frozen}
        """Shapes of the trained weights in the order of the vector."""
        self._frozen_shapes = {name: shape for name, shape in shapes.items() if name in frozen}
        self.vector = nn.Parameter(_one_vector([parameters[name] for name in self.shapes]))
        self.frozen = _one_vector([parameters[name] for name in self._frozen_shapes])
        self.gradient = torch.zeros_like(self.vector.detach())
        self.vector.grad = self.gradient
        for name, view in self.all_named(self.vector.detach(), self.frozen).items():
            parameters[name].data = view

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Views into a vector of this length, under the names of the trained weights."""
        return _views(vector, self.shapes)

    def all_named(self, vector: Tensor, frozen: Tensor) -> dict[str, Tensor]:
        """Views into the vectors of trained and of frozen weights, under the names of all."""
        return {**_views(vector, self.shapes), **_views(frozen, self._frozen_shapes)}


def _one_vector(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters]) if parameters else torch.empty(0)


def _views(vector: Tensor, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    if not shapes:
        return {}
    parts = torch.split(vector, [shape.numel() for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


class WorkingCopy:
    """The model that steps are computed with: its half-precision weights are cast once a step, in one kernel.

    Micro-batches that are worked through in parallel need a model each, with gradients of its own; all of them share
    the same weights.
    """

    def __init__(self, model: TranslationModel, flat: FlatWeights, dtype: torch.dtype, copies: int = 1) -> None:
        self._flat = flat
        self._half, self._half_frozen = None, None
        if dtype != torch.float32:
            self._half = torch.empty_like(flat.vector.detach(), dtype=dtype)
            self._half_frozen = torch.empty_like(flat.frozen, dtype=dtype)
        trained = flat.vector.detach() if self._half is None else self._half
        weights = flat.all_named(trained, flat.frozen if self._half_frozen is None else self._half_frozen)
        self.models = [model.working_copy(weights).train() for _ in range(copies)]
        # Parameters are views into vectors of one layout, so their offsets are their places in it.
        vectors = {vector.untyped_storage().data_ptr() for vector in (flat.vector, trained)}
        self.leaves = [
            sorted(_trained_parameters(copy, vectors), key=lambda parameter: parameter.storage_offset())
            for copy in self.models
        ]
        """What backward leaves gradients at in each model, in the order of the vector."""
        self.refresh_frozen()

    def refresh(self) -> None:
        """Take up the trained weights as they are now."""
        if self._half is not None:
            self._half.copy_(self._flat.vector.detach())

    def refresh_frozen(self) -> None:
        """Take up the frozen weights, which change only when others are loaded."""
        if self._half_frozen is not None:
            self._half_frozen.copy_(self._flat.frozen)


def _trained_parameters(model: TranslationModel, vectors: Collection[int]) -> list[nn.Parameter]:
    """The parameters that lie in these vectors; backward passes the others by."""
    trained = []
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.untyped_storage().data_ptr() in vectors)
        trained += [parameter] if parameter.requires_grad else []
    return trained
