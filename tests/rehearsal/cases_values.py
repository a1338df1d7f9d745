"""Values and gradients on the rehearsal device equal the CPU's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rehearsal.device import Rehearsal

# An epsilon of the dtype times the few dozen roundings of a layer: attention is computed in float32 here.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}


def _layer_and_gradients(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Output and all gradients of a transformer layer with a padding mask."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x, padding = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    layer = layer.to(device, dtype)
    output = layer(x.to(device, dtype), src_key_padding_mask=padding.to(device))
    output.float().square().mean().backward()
    return [output.detach().float().cpu(), *(p.grad.float().cpu() for p in layer.parameters() if p.grad is not None)]


def _check_layer(dtype: torch.dtype) -> None:
    for expected, got in zip(_layer_and_gradients("cpu", dtype), _layer_and_gradients("cuda:1", dtype), strict=True):
        torch.testing.assert_close(got, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def case_layer_float32(rehearsal: Rehearsal) -> None:
    _check_layer(torch.float32)
    assert rehearsal.counts.attention == {"efficient": 1}


def case_layer_bfloat16(rehearsal: Rehearsal) -> None:
    _check_layer(torch.bfloat16)


def case_layer_float16(rehearsal: Rehearsal) -> None:
    _check_layer(torch.float16)


def case_attention_equals_composed_attention(rehearsal: Rehearsal) -> None:
    """Gradients too, with each kind of mask."""
    torch.manual_seed(2)
    inputs = [torch.randn(2, 2, 4, 8) for _ in range(3)]
    bias, keep = torch.randn(2, 1, 4, 4), torch.rand(2, 1, 4, 4) > 0.3
    keep[..., 0] = True
    for mask, is_causal in ((None, False), (None, True), (bias, False), (keep, False)):
        results = []
        for device in ("cpu", "cuda"):
            placed = None if mask is None else mask.to(device)
            leaves = q, k, v = [tensor.clone().to(device).requires_grad_() for tensor in inputs]
            output = F.scaled_dot_product_attention(q, k, v, attn_mask=placed, is_causal=is_causal)
            output.square().sum().backward()
            results.append([output.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves if leaf.grad is not None)])
        for expected, got in zip(*results, strict=True):
            torch.testing.assert_close(got, expected)


def case_attention_dropout_is_the_same_in_backward(rehearsal: Rehearsal) -> None:
    """The output is linear in the values, so the gradient of its sum must agree with the difference quotient."""
    torch.manual_seed(3)
    query, value = torch.randn(1, 1, 6, 8, device="cuda"), torch.randn(1, 1, 6, 8, device="cuda", requires_grad=True)
    state = torch.cuda.get_rng_state()
    F.scaled_dot_product_attention(query, query, value, dropout_p=0.5).sum().backward()
    torch.cuda.set_rng_state(state)
    moved = F.scaled_dot_product_attention(query, query, torch.ones_like(value), dropout_p=0.5).sum()
    assert value.grad is not None
    torch.testing.assert_close(value.grad.sum().cpu(), moved.cpu())


def case_parameters_are_views_of_a_flat_tensor(rehearsal: Rehearsal) -> None:
    flat, seen = torch.zeros(10, device="cuda"), []
    parameter = nn.Parameter(flat[2:8].view(2, 3))

    def take(leaf: torch.Tensor) -> None:
        assert leaf.grad is not None
        seen.append(leaf.grad.tolist())
        leaf.grad = None

    parameter.register_post_accumulate_grad_hook(take)
    (parameter * 3).sum().backward()
    flat[2:8].fill_(7)
    assert seen == [[[3.0] * 3] * 2]
    assert parameter.grad is None
    assert parameter.tolist() == [[7.0] * 3] * 2


def case_moving_a_module_keeps_its_parameters(rehearsal: Rehearsal) -> None:
    """As on CUDA: tied weights stay tied, an optimizer made before still has them."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = weight = first.weight
    nn.Sequential(first, second).to("cuda").half()
    assert first.weight is second.weight is weight
    assert weight.device == torch.device("cuda:0")
    assert weight.dtype == torch.float16


def case_deepcopy_shares_what_the_memo_says(rehearsal: Rehearsal) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("cuda")
    twin = copy.deepcopy(module, {id(module[0].weight): module[0].weight})
    assert twin[0].weight is module[0].weight
    assert twin[1].weight is not module[1].weight
    assert isinstance(twin[1].weight, nn.Parameter)
    flat = torch.zeros(4, device="cuda")
    left, right = copy.deepcopy([flat[:2], flat[:2]])
    left.fill_(1)
    assert right.tolist() == [1.0, 1.0]
    assert flat.tolist() == [0.0] * 4


def case_fused_adamw(rehearsal: Rehearsal) -> None:
    """With a loss scale and a step that overflowed."""
    finals = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(4)
        parameter = nn.Parameter(torch.randn(5).to(device))
        optimizer: Any = torch.optim.AdamW([parameter], lr=0.1, fused=True)
        for overflowed in (0.0, 1.0, 0.0):
            optimizer.grad_scale = torch.tensor(2.0, device=device)
            optimizer.found_inf = torch.tensor(overflowed, device=device)
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        finals.append(parameter.detach().cpu())
    assert torch.equal(*finals)


def case_results_written_in_place(rehearsal: Rehearsal) -> None:
    ones, joined, product = (
        torch.ones(4, device="cuda"),
        torch.zeros(8, device="cuda"),
        torch.zeros(3, 4, device="cuda"),
    )
    torch.cat([ones, ones * 2], out=joined)
    joined.add_(torch.ones(8, device="cuda", dtype=torch.bfloat16))
    joined[2:4].mul_(5)
    torch.mm(torch.ones(2, 3, device="cuda"), torch.ones(3, 4, device="cuda"), out=product[1:])
    assert joined.tolist() == [2.0, 2.0, 10.0, 10.0, 3.0, 3.0, 3.0, 3.0]
    assert product.tolist() == [[0.0] * 4, [3.0] * 4, [3.0] * 4]
    assert torch.arange(3, device="cuda").tolist() == [0, 1, 2]


def case_half_precision_products(rehearsal: Rehearsal) -> None:
    """Rounded once; into out=, with another result dtype, and not of two dtypes."""
    a, b = torch.randn(3, 4, device="cuda").half(), torch.randn(4, 2, device="cuda").half()
    exact, out = a.float() @ b.float(), torch.zeros(4, 2, device="cuda", dtype=torch.float16)
    assert torch.equal(a @ b, exact.half())
    torch.mm(a, b, out=out[1:])
    assert torch.equal(out[1:], exact.half())
    assert torch.equal(torch.mm(a, b, out_dtype=torch.float32), exact)
    with pytest.raises(RuntimeError, match="same dtype"):
        a.float() @ b


def case_state_dict_and_data(rehearsal: Rehearsal) -> None:
    source, target = nn.Linear(2, 2), nn.Linear(2, 2).to("cuda")
    target.load_state_dict(source.state_dict())
    assert torch.equal(target.state_dict()["weight"].cpu(), source.weight)
    target.weight.data = target.weight.data.half()
    assert target.weight.cpu().dtype == torch.float16


def case_random_numbers_are_the_cards_own(rehearsal: Rehearsal) -> None:
    """torch.manual_seed seeds the card as well; what the CPU draws changes nothing on the card."""
    torch.manual_seed(5)
    first = F.dropout(torch.ones(64, device="cuda"), 0.5)
    torch.manual_seed(5)
    torch.rand(7)
    assert torch.equal(F.dropout(torch.ones(64, device="cuda"), 0.5), first)
    assert not torch.equal(F.dropout(torch.ones(64, device="cuda"), 0.5), first)


def case_generator_of_the_card(rehearsal: Rehearsal) -> None:
    generator = torch.Generator(device="cuda").manual_seed(6)
    assert generator.device == torch.device("cuda:0")
    expected = torch.rand(3, generator=torch.Generator().manual_seed(6))
    assert torch.equal(torch.rand(3, device="cuda", generator=generator).cpu(), expected)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(3, device="cuda", generator=torch.Generator())


def case_inference_mode(rehearsal: Rehearsal) -> None:
    with torch.inference_mode():
        result = nn.Linear(2, 2).to("cuda")(torch.ones(1, 2, device="cuda"))
    assert not result.requires_grad
