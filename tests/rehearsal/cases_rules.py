"""What CUDA refuses and the CPU takes is refused on the rehearsal device."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F

from rehearsal.device import Rehearsal


def case_cpu_tensor_mixed_in(rehearsal: Rehearsal) -> None:
    x = torch.ones(3, device="cuda")
    for mixed in (lambda: x + torch.ones(3), lambda: torch.ones(3) * x, lambda: torch.cat([x, torch.ones(3)])):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            mixed()
    with pytest.raises(RuntimeError, match="same device"):
        F.embedding(torch.tensor([0]), torch.ones(3, 2, device="cuda"))


def case_number_in_a_cpu_tensor(rehearsal: Rehearsal) -> None:
    """A 0-dim CPU tensor is a number to a pointwise operator, and only there."""
    x = torch.ones(3, device="cuda")
    assert (x + torch.tensor(2.0)).tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="same device"):
        torch.stack([x[0], torch.tensor(1.0)])


def case_wrong_card(rehearsal: Rehearsal) -> None:
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        torch.ones(3, device="cuda:0") + torch.ones(3, device="cuda:1")
    assert torch.ones(3, device="cuda:0").to("cuda:1").device.index == 1


def case_missing_card(rehearsal: Rehearsal) -> None:
    for call in (
        lambda: torch.cuda.set_device(2),
        lambda: torch.ones(1, device="cuda:2"),
        lambda: torch.ones(1).to("cuda:7"),
    ):
        with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
            call()


def case_attention_mask(rehearsal: Rehearsal) -> None:
    query = torch.ones(1, 1, 2, 8, device="cuda", dtype=torch.bfloat16)
    mask = torch.zeros(2, 2, device="cuda")
    with pytest.raises(RuntimeError, match="invalid dtype for bias - should match query's dtype"):
        F.scaled_dot_product_attention(query, query, query, attn_mask=mask)
    with pytest.raises(RuntimeError, match="should not be set when is_causal=True"):
        F.scaled_dot_product_attention(query, query, query, attn_mask=mask.bfloat16(), is_causal=True)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.scaled_dot_product_attention(query, query.float(), query)
    with pytest.raises(RuntimeError, match="same device"):
        F.scaled_dot_product_attention(query, query, query, attn_mask=mask.bfloat16().cpu())
    F.scaled_dot_product_attention(query, query, query, attn_mask=mask.bfloat16())
    F.scaled_dot_product_attention(query, query, query, attn_mask=mask.bool())
    F.scaled_dot_product_attention(query, query, query)
    assert rehearsal.counts.attention == {"efficient": 2, "flash": 1}


def case_index_on_the_wrong_side(rehearsal: Rehearsal) -> None:
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.ones(3)[torch.tensor([0], device="cuda")]
    with pytest.raises(RuntimeError, match="expected self and values to be on the same device"):
        torch.ones(3, device="cuda")[torch.tensor([0, 1], device="cuda")] = torch.ones(2)


def case_numpy_and_pinning(rehearsal: Rehearsal) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.pin_memory()
    assert x.cpu().numpy().tolist() == [1.0] * 3


def case_deterministic_algorithms(rehearsal: Rehearsal) -> None:
    x = torch.ones(2, 2, device="cuda")
    torch.use_deterministic_algorithms(True)
    try:
        with patch.dict(os.environ):
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
            with pytest.raises(RuntimeError, match="CUBLAS_WORKSPACE_CONFIG=:4096:8"):
                x @ x
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
            assert (x @ x).tolist() == [[2.0, 2.0]] * 2
        with pytest.raises(RuntimeError, match="cumsum_cuda_kernel does not have a deterministic implementation"):
            x.cumsum(0)
        x.long().cumsum(0)
        x.index_add_(0, torch.tensor([0], device="cuda"), torch.ones(1, 2, device="cuda"))
    finally:
        torch.use_deterministic_algorithms(False)
