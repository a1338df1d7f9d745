"""The pieces of the Transformer against PyTorch's own, and dropout against its statistics."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.model.layers import (
    CrossAttention,
    FeedForward,
    KeyValues,
    SelfAttention,
    add_dropout,
    attend,
    dropout,
    flatten_rows,
    merge_heads,
    relu_dropout,
    split_heads,
    unflatten_rows,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_its_share_and_preserves_the_mean(rate: float) -> None:
    torch.manual_seed(1)
    count = 400_000
    x = torch.ones(count)
    dropped = dropout(x, rate, training=True)
    exact_rate = round(rate * 256) / 256
    deviation = math.sqrt(exact_rate * (1 - exact_rate) / count)
    assert abs(exact_rate - rate) <= 1 / 512
    assert float((dropped == 0).float().mean()) == pytest.approx(exact_rate, abs=4 * deviation)
    assert float(dropped.mean()) == pytest.approx(1, abs=4 * deviation / (1 - exact_rate))
    # What is kept is scaled by one factor.
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - exact_rate)])


def test_every_byte_of_a_draw_is_uniform() -> None:
    """Eight elements share one random number; a byte of it with fewer values would drop another share."""
    torch.manual_seed(1)
    count = 50_000
    kept = dropout(torch.ones(count, 8), 0.25, training=True) != 0
    shares = 1 - kept.double().mean(0)
    assert shares.tolist() == pytest.approx([0.25] * 8, abs=4.5 * math.sqrt(0.25 * 0.75 / count))
    # Nor do neighbours go together: their covariance is zero.
    covariances = torch.cov(kept.double().T).fill_diagonal_(0)
    assert float(covariances.abs().max()) < 5 * 0.25 * 0.75 / math.sqrt(count)


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (3, 5, 7), (2, 4, 8), (0, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_dropout_is_its_mask(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    x = normal(*shape, dtype=dtype).requires_grad_()
    dropped = dropout(x, 0.5, training=True)
    grad = normal(*shape, seed=1, dtype=dtype)
    dropped.backward(grad)
    assert x.grad is not None
    mask = torch.where(dropped == 0, 0.0, 2.0).to(dtype)
    assert torch.equal(dropped, x * mask)
    assert torch.equal(x.grad, grad * mask)


def test_dropout_of_a_transposed_tensor_keeps_its_elements_in_place() -> None:
    torch.manual_seed(3)
    x = normal(6, 9).T
    dropped = dropout(x, 0.5, training=True)
    assert torch.equal(dropped, torch.where(dropped == 0, 0.0, 2 * x))


def test_dropout_follows_the_seed() -> None:
    x = torch.ones(1000)
    torch.manual_seed(5)
    first, second = dropout(x, 0.3, True), dropout(x, 0.3, True)
    torch.manual_seed(5)
    assert torch.equal(dropout(x, 0.3, True), first)
    assert torch.equal(dropout(x, 0.3, True), second)
    assert not torch.equal(first, second)
    torch.manual_seed(6)
    assert not torch.equal(dropout(x, 0.3, True), first)


@pytest.mark.parametrize(("rate", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_no_dropout_draws_nothing(rate: float, training: bool) -> None:
    x = torch.ones(1000)
    before = torch.get_rng_state()
    assert dropout(x, rate, training) is x
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_fused_dropouts_are_what_they_are_made_of(rate: float) -> None:
    """Values and gradients of the same draws; what is just zero has no gradient, as ReLU has it."""
    results = []
    for fused in (True, False):
        x, change = normal(5, 64).requires_grad_(), normal(5, 64, seed=1).requires_grad_()
        with torch.no_grad():
            x[0, :8] = 0
        torch.manual_seed(3)
        if fused:
            y = relu_dropout(add_dropout(x, change, rate, True), rate, True)
        else:
            y = dropout(F.relu(x + dropout(change, rate, True)), rate, True)
        y.backward(normal(5, 64, seed=2))
        assert x.grad is not None
        assert change.grad is not None
        results.append((y.detach(), x.grad, change.grad))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_relu_and_dropout_is_scaled_as_its_value(dtype: torch.dtype) -> None:
    """Also where the number format would round the scale."""
    x, grad = normal(5, 64, dtype=dtype).requires_grad_(), normal(5, 64, seed=2, dtype=dtype)
    torch.manual_seed(3)
    kept = relu_dropout(x, 0.1, True)
    kept.backward(grad)
    assert x.grad is not None
    scale = 256 / 230
    assert torch.equal(x.grad, torch.where(kept > 0, grad * scale, 0))
    assert torch.equal(kept, torch.where(kept > 0, x * scale, 0))


@pytest.mark.parametrize("rate", [0.001, 0.998, 0.9999])
def test_extreme_rates_stay_finite(rate: float) -> None:
    torch.manual_seed(1)
    dropped = dropout(torch.ones(20_000), rate, training=True)
    assert bool(dropped.isfinite().all())
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=0.01)


# --- attention

ATTENTION_MASKS = {
    "none": None,
    "padding": torch.zeros(3, 1, 1, 7).index_fill_(3, torch.tensor([5, 6]), float("-inf")),
    "causal": torch.full((5, 7), float("-inf")).triu(1),
    "bias": normal(3, 1, 5, 7, seed=9, dtype=torch.float32),
}


@pytest.mark.parametrize("mask", ATTENTION_MASKS.values(), ids=ATTENTION_MASKS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_whose_weights_are_dropped_is_what_it_is_made_of(mask: Tensor | None, dtype: torch.dtype) -> None:
    """In float32 with rows that are shorter than a processor's vector."""
    results = []
    for fused in (True, False):
        shapes = ((3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 4))
        q, k, v = inputs = [
            normal(*shape, seed=seed, dtype=dtype).requires_grad_() for seed, shape in enumerate(shapes)
        ]
        added = None if mask is None else mask.to(q.dtype)
        torch.manual_seed(3)
        if fused:
            mixed = attend(q, k, v, mask=added, rate=0.3)
        else:
            scores = q @ k.transpose(-1, -2) / 2
            mixed = dropout((scores if added is None else scores + added).softmax(-1), 0.3, True) @ v
        mixed.backward(normal(3, 2, 5, 4, seed=5, dtype=dtype))
        results.append((mixed.detach(), *(each.grad for each in inputs)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("mask", ATTENTION_MASKS.values(), ids=ATTENTION_MASKS.keys())
def test_attention_and_its_gradients_are_those_of_pytorch(mask: Tensor | None) -> None:
    shapes = ((3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 4))
    inputs = q, k, v = [normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    ours = attend(q, k, v, mask=None if mask is None else mask.double(), rate=0.0)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else mask.double())
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    grad = normal(*ours.shape, seed=5)
    for mine, reference in zip(
        torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(theirs, inputs, grad), strict=True
    ):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_attention_in_other_number_formats(dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = (normal(3, 2, 6, 4, seed=seed) for seed in range(3))
    ours = attend(q.to(dtype), k.to(dtype), v.to(dtype), causal=True, rate=0.0)
    assert ours.dtype == dtype
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=tolerance)


def test_attention_dropout_drops_weights_and_not_values() -> None:
    torch.manual_seed(2)
    q, k = torch.zeros(1, 1, 4000, 4), torch.zeros(1, 1, 4, 4)
    # Equal scores: four weights of 1/4 each, halved in number and doubled in size by dropout.
    sums = attend(q, k, torch.eye(4)[None, None], rate=0.5)
    assert sums.unique().tolist() == [0.0, 0.5]
    assert float(sums.sum(-1).mean()) == pytest.approx(1, abs=0.05)
    kept = (sums != 0).sum(-1).flatten().bincount(minlength=5) / 4000
    assert kept.tolist() == pytest.approx([1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16], abs=0.03)


def test_heads_are_split_and_merged_again() -> None:
    x = torch.arange(2 * 3 * 8).view(2, 3, 8)
    heads = split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    assert heads[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    assert torch.equal(merge_heads(heads), x)


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 15), (torch.bfloat16, 64), (torch.float16, 64)])
def test_rows_are_rounded_up_where_products_have_compiled_kernels(dtype: torch.dtype, rows: int) -> None:
    x_BTD = normal(3, 5, 16).to(dtype)
    x_ND = flatten_rows(x_BTD)
    assert x_ND.shape == (rows, 16)
    assert not x_ND[15:].any()
    assert torch.equal(unflatten_rows(x_ND, (3, 5)), x_BTD)


def test_self_attention_is_pytorchs_multi_head_attention() -> None:
    torch.manual_seed(0)
    ours = SelfAttention(16, 4, rate=0.0).double()
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.query_key_value.weight)
        theirs.in_proj_bias.copy_(ours.query_key_value.bias)
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    x_BTD = normal(3, 5, 16)
    causal = torch.full((5, 5), float("-inf"), dtype=torch.float64).triu(1)
    expected, _ = theirs(x_BTD, x_BTD, x_BTD, attn_mask=causal)
    mixed = unflatten_rows(ours(flatten_rows(x_BTD), (3, 5), causal=True), (3, 5))
    torch.testing.assert_close(mixed, expected, rtol=1e-10, atol=1e-12)


def test_cross_attention_is_pytorchs_multi_head_attention() -> None:
    torch.manual_seed(0)
    ours = CrossAttention(16, 4, rate=0.0).double()
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    x_BTD, memory_BSD = normal(3, 5, 16), normal(3, 7, 16, seed=1)
    padding_BS = torch.arange(7) >= torch.tensor([[7], [4], [5]])
    mask = torch.zeros(3, 1, 1, 7, dtype=torch.float64).masked_fill(padding_BS[:, None, None], float("-inf"))
    expected, _ = theirs(x_BTD, memory_BSD, memory_BSD, key_padding_mask=padding_BS)
    keys_values = ours.keys_values(flatten_rows(memory_BSD), (3, 7))
    mixed = unflatten_rows(ours(flatten_rows(x_BTD), (3, 5), keys_values, mask), (3, 5))
    torch.testing.assert_close(mixed, expected, rtol=1e-10, atol=1e-12)


def test_keys_and_values_grow_and_follow_a_selection() -> None:
    past = KeyValues()
    first, second = normal(3, 2, 1, 4), normal(3, 2, 1, 4, seed=1)
    assert torch.equal(past.append(first, -first)[0], first)
    past.select(torch.tensor([2, 0, 0]))
    keys, values = past.append(second, -second)
    assert torch.equal(keys, torch.cat([first[[2, 0, 0]], second], dim=2))
    assert torch.equal(values, -keys)


def test_feed_forward_by_hand_and_its_dropout_only_in_training() -> None:
    torch.manual_seed(0)
    block = FeedForward(6, 400, rate=0.5).double()
    x = normal(3, 6)
    expected = F.relu(x @ block.inner.weight.T + block.inner.bias) @ block.output.weight.T + block.output.bias
    torch.testing.assert_close(block.eval()(x), expected)
    assert not torch.allclose(block.train()(x), expected)
