"""What every model gets from TranslationModel: weights by name, flat weights and a working copy, found by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tandem.config import ModelConfig
from tandem.errors import TandemError
from tandem.model.flat_weights import FlatWeights, WorkingCopy
from tandem.model.loss import translation_loss
from tandem.model.transformer import Transformer
from tandem.model.translation_model import TranslationModel, build_model, frozen_names
from tests.model.models import batch_of, random_ids, random_model

CONFIG = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=16, heads=2, d_ff=16, max_length=20, dropout=0.0)
PLACE = f"{__name__}:SharedLayers"


class SharedLayers(Transformer):
    """A Transformer whose decoder applies one layer twice, with nothing but the defaults for training."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.decoder = nn.ModuleList([self.decoder[0]] * config.decoder_layers)

    parameter_order = TranslationModel.parameter_order
    working_copy = TranslationModel.working_copy  # type: ignore[assignment]


def shared(seed: int) -> TranslationModel:
    torch.manual_seed(seed)
    return build_model(CONFIG.model_copy(update={"kind": PLACE}), 21).eval()


def test_shared_weights_are_saved_once_and_stay_shared() -> None:
    model, other = shared(1), shared(2)
    assert not [name for name in model.named_weights() if name.startswith("decoder.1.")]
    other.load_weights(model.named_weights())
    assert other.decoder[0] is other.decoder[1]  # type: ignore[index]
    source_BS, target_BT = random_ids(2, 5), random_ids(2, 4, seed=1)
    assert torch.equal(model(source_BS, target_BT), other(source_BS, target_BT))
    for wrong in ({}, {**model.named_weights(), "more": torch.zeros(1)}):
        with pytest.raises(RuntimeError):
            other.load_weights(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_default_working_copy_follows_the_weights_and_has_its_leaves_in_their_order(dtype: torch.dtype) -> None:
    model = shared(1)
    flat = FlatWeights(model)
    working = WorkingCopy(model, flat, dtype)
    with torch.no_grad():
        flat.vector.mul_(0.5)
    working.refresh()
    assert [leaf.shape for leaf in working.leaves[0]] == list(flat.shapes.values())
    for leaf, weights in zip(working.leaves[0], flat.named(flat.vector.detach()).values(), strict=True):
        assert leaf.dtype == dtype
        torch.testing.assert_close(leaf.float(), weights, rtol=1e-2, atol=1e-4)
    assert working.models[0].training
    assert not model.training
    sums = translation_loss(working.models[0], batch_of(random_ids(2, 5), random_ids(2, 6, seed=1)), 0.1)
    sums.scaled.backward()
    assert sums.nll.dtype == torch.float32
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in working.leaves[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frozen_weights_are_outside_of_vector_and_backward(dtype: torch.dtype) -> None:
    model = random_model(spread=0.0).float()
    frozen = frozen_names(model, ["embedding", "encoder"])
    flat = FlatWeights(model, frozen)
    working = WorkingCopy(model, flat, dtype)
    working.refresh()
    assert flat.shapes.keys() == model.state_dict().keys() - frozen
    assert sum(map(torch.numel, working.leaves[0])) == len(flat.vector)
    assert len(flat.vector) + len(flat.frozen) == sum(each.numel() for each in model.parameters())
    batch = batch_of(random_ids(2, 5), random_ids(2, 6, seed=1))
    translation_loss(working.models[0], batch, 0.1).scaled.backward()
    touched = {name for name, each in working.models[0].named_parameters() if each.grad is not None}
    assert touched
    assert all(name.startswith(("decoder", "joint")) for name in touched)
    # Other weights reach the working copy although it takes up frozen ones only when they are loaded.
    with torch.no_grad():
        flat.frozen.mul_(0.5)
    working.refresh_frozen()
    embedding = working.models[0].output_projection()
    torch.testing.assert_close(embedding.float(), model.output_weight(), rtol=1e-2, atol=1e-4)


def test_parts_and_rows_of_a_model_have_names() -> None:
    model = random_model()
    assert list(model.parts()) == ["embedding", "encoder", "decoder"]
    assert {name for names in model.parts().values() for name in names} == set(model.parameter_order())
    assert model.piece_rows() == {"embedding.weight"}


class EncodesOnly(nn.Module):
    """Has the attribute by which models are told from other objects, and nothing else of one."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()

    def encode(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("nowhere:Model", "nowhere:Model: this model cannot be imported (No module named 'nowhere')"),
        ("builtins:slice", "builtins:slice: a type, not a model (it has no encode); name one"),
        (f"{__name__}:EncodesOnly", f"model.kind: {__name__}:EncodesOnly makes a EncodesOnly, not a TranslationModel"),
    ],
)
def test_a_name_that_is_no_model(kind: str, error: str) -> None:
    with pytest.raises(TandemError) as caught:
        build_model(ModelConfig(kind=kind), 21)
    assert str(caught.value).startswith(error)
