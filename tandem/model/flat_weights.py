"""All weights of a model side by side in one vector, and the copy of the model that training steps go through.

One vector of weights and one of gradients make of a few hundred small tensors a single large one: the optimizer, the
gradient's norm, the exchange between processes and the cast to half precision are one kernel each instead of hundreds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tandem.model.transformer import Transformer

# The maps from the encoded source to each decoder layer's keys and values.
SOURCE_WEIGHTS, SOURCE_BIASES = "cross_attention.key_value.weight", "cross_attention.key_value.bias"


class FlatWeights:
    """The float32 weights of a model as one vector; the model's own parameters become views into it."""

    def __init__(self, model: Transformer) -> None:
        parameters = dict(model.named_parameters())
        names = in_forward_order(list(parameters))
        self.shapes = {name: parameters[name].shape for name in names}
        self.vector = nn.Parameter(torch.cat([parameters[name].detach().flatten() for name in names]))
        self.gradient = torch.zeros_like(self.vector.detach())
        self.vector.grad = self.gradient
        for name, view in self.named(self.vector.detach()).items():
            _set_parameter(model, name, nn.Parameter(view))

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Views into a vector of this length, under the names of the weights."""
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def fill(self, vector: Tensor, values: Mapping[str, Tensor]) -> None:
        """Copy values by name into a vector of this length."""
        for name, view in self.named(vector).items():
            view.copy_(values[name])


def in_forward_order(names: list[str]) -> list[str]:
    """Parameters as forward first needs them, so that backward is done with the end of the vector first.

    The encoded source's keys and values for all decoder layers are made before the decoder begins; their weights lie
    side by side, and so do their biases, so that one product can make them all.
    """
    source = [name for kind in (SOURCE_WEIGHTS, SOURCE_BIASES) for name in names if name.endswith(kind)]
    decoder = [name for name in names if name.startswith("decoder") and name not in source]
    return [name for name in names if name not in source and name not in decoder] + source + decoder


class WorkingCopy:
    """The model that steps are computed with, in the precision of the training.

    Half-precision weights are cast from the float32 vector once a step, in one kernel. The embedding is looked up in
    float32, because a frequent word's gradient is a sum of thousands, which half precision would cut short; the output
    projection, the same matrix, takes part in products and is cast like the rest.
    """

    def __init__(self, model: Transformer, flat: FlatWeights, dtype: torch.dtype) -> None:
        self._flat = flat
        self._half = None if dtype == torch.float32 else torch.empty_like(flat.vector.detach(), dtype=dtype)
        weights = flat.named(flat.vector.detach() if self._half is None else self._half)
        self.model = _copy_over(model, weights)
        self.leaves = _leaves(self.model, list(weights))
        """What backward leaves gradients at, in the order of the vector."""

    def compile(self) -> None:
        """Fuse each layer's kernels from its first use on; one set of kernels serves batches of all shapes."""
        for layer in (*self.model.encoder, *self.model.decoder):
            layer.compile(dynamic=True)

    def refresh(self) -> None:
        """Take up the weights as they are now."""
        if self._half is not None:
            self._half.copy_(self._flat.vector.detach())


def _copy_over(model: Transformer, weights: Mapping[str, Tensor]) -> Transformer:
    """A model of the same shape with these weights, and the float32 embedding of the original."""
    with torch.device("meta"):
        copy = Transformer(model.config, model.vocab_size)
        width = model.config.d_model
        joint = nn.Linear(width, 2 * width * model.config.decoder_layers)
    for layer in copy.decoder:
        del layer.cross_attention.key_value  # type: ignore[union-attr]
    for name, values in weights.items():
        if not name.endswith((SOURCE_WEIGHTS, SOURCE_BIASES)):
            _set_parameter(copy, name, nn.Parameter(values))
    joint.weight = nn.Parameter(_side_by_side(weights, SOURCE_WEIGHTS).view(joint.weight.shape))
    joint.bias = nn.Parameter(_side_by_side(weights, SOURCE_BIASES))
    copy.joint_key_value = joint
    copy.embedding.weight = model.embedding.weight
    copy.positions = model.positions
    copy.cast_projection = weights["embedding.weight"]
    return copy


def _side_by_side(weights: Mapping[str, Tensor], kind: str) -> Tensor:
    """One view of all weights of a kind, which are neighbours in the vector."""
    found = [values for name, values in weights.items() if name.endswith(kind)]
    return found[0].as_strided((sum(values.numel() for values in found),), (1,), found[0].storage_offset())


def _leaves(copy: Transformer, names: list[str]) -> list[nn.Parameter]:
    """The copy's parameters in the order of these names, each once."""
    source = {SOURCE_WEIGHTS: "joint_key_value.weight", SOURCE_BIASES: "joint_key_value.bias"}
    leaves: list[nn.Parameter] = []
    for name in names:
        parameter = copy.get_parameter(next((joint for kind, joint in source.items() if name.endswith(kind)), name))
        if not leaves or leaves[-1] is not parameter:
            leaves.append(parameter)
    return leaves


def _set_parameter(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, parameter)
