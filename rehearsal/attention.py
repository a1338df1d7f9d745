"""Scaled dot product attention as flash attention does it: exact values, and only what flash keeps for backward."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from rehearsal import rules
from rehearsal.session import current
from rehearsal.tensor import RehearsedTensor, host_of

native_attention = F.scaled_dot_product_attention
FORWARD_KERNELS, BACKWARD_KERNELS = 1, 3
"""Flash attention's backward has a kernel before it (sums over the output) and one after (casts a gradient)."""


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """F.scaled_dot_product_attention on the rehearsal device."""
    rehearsal = current()
    rules.check_attention(query, key, value, attn_mask, is_causal)
    backend = rules.attention_backend(query, attn_mask is not None, rehearsal.model.capability)
    rehearsal.counts.attention[backend] += 1
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    result: torch.Tensor = FUNCTIONS[backend].apply(query, key, value, attn_mask, dropout_p, is_causal, scale)  # type: ignore[no-untyped-call]
    return result


def on_any_device(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """F.scaled_dot_product_attention while there is a rehearsal."""
    return attend(query, *args, **kwargs) if query.is_cuda else native_attention(query, *args, **kwargs)


class _Attention(torch.autograd.Function):
    """Keeps query, key, value, mask, output, logarithms of the softmax's sums, generator state: what flash keeps."""

    @staticmethod
    def forward(
        ctx: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float, is_causal: bool, scale: float
    ) -> RehearsedTensor:
        card = current().card(query.device)
        card.finish_collectives()
        current().counts.launches["attention"] += FORWARD_KERNELS
        ctx.dropout, ctx.is_causal, ctx.scale, ctx.random_state = dropout, is_causal, scale, card.generator.get_state()
        scores = _scores(query.host, key.host, host_of(mask), is_causal, scale)
        sums = scores.logsumexp(-1)
        kept = None
        if dropout:
            kept = _kept(scores, dropout, card.generator)
        weights = _weights(scores, sums, kept)
        output = RehearsedTensor(_laid_out((weights @ value.host.to(scores.dtype)).to(query.dtype)), card)
        ctx.save_for_backward(query, key, value, mask, output, RehearsedTensor(sums, card))
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        query, key, value, mask, output, sums = ctx.saved_tensors
        card = current().card(query.device)
        card.finish_collectives()
        current().counts.launches["attention_backward"] += BACKWARD_KERNELS
        scores = _scores(query.host, key.host, host_of(mask), ctx.is_causal, ctx.scale)
        kept = None
        if ctx.dropout:
            kept = _kept(scores, ctx.dropout, torch.Generator().set_state(ctx.random_state))
        weights, dropped = _weights(scores, sums.host, None), _weights(scores, sums.host, kept)
        wide = scores.dtype
        grad = grad_output.host.to(wide)
        grad_value = dropped.mT @ grad
        grad_weights = grad @ value.host.to(wide).mT
        if kept is not None:
            grad_weights = grad_weights * kept
        grad_scores = weights * (grad_weights - (grad * output.host.to(wide)).sum(-1, keepdim=True))
        results = (
            grad_scores @ key.host.to(wide) * ctx.scale,
            grad_scores.mT @ query.host.to(wide) * ctx.scale,
            grad_value,
        )
        grads = [
            RehearsedTensor(_laid_out(result.sum_to_size(tensor.shape).to(tensor.dtype)), card)
            for result, tensor in zip(results, (query, key, value), strict=True)
        ]
        grad_mask = None
        if mask is not None and ctx.needs_input_grad[3]:
            grad_mask = RehearsedTensor(grad_scores.sum_to_size(mask.shape).to(mask.dtype), card)
        return *grads, grad_mask, None, None, None


class _ScaledDotProductFlashAttention(_Attention):
    """Under the name by which a result's grad_fn tells CUDA's backend."""


class _ScaledDotProductEfficientAttention(_Attention):
    """The same for the memory-efficient backend."""


FUNCTIONS: dict[str, type[_Attention]] = {
    "flash": _ScaledDotProductFlashAttention,
    "efficient": _ScaledDotProductEfficientAttention,
    "math": _Attention,
}


def _laid_out(result: torch.Tensor) -> torch.Tensor:
    """The same values as CUDA's kernels leave them: positions before heads in memory, so that heads merge for nothing.

    (aten/src/ATen/native/transformers/cuda/attention.cu transposes before and after the kernel.)
    """
    return result.transpose(1, 2).contiguous().transpose(1, 2) if result.dim() == 4 else result


def _scores(query: torch.Tensor, key: torch.Tensor, mask: Any, is_causal: bool, scale: float) -> torch.Tensor:
    """Scaled dot products with the mask added, in float32 (float64 stays what it is)."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).mT * scale
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def _weights(scores: torch.Tensor, sums: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """The softmax, 0 in a row that is masked as a whole, with dropout applied."""
    weights = (scores - sums.unsqueeze(-1)).exp().nan_to_num(0.0)
    return weights if kept is None else weights * kept


def _kept(scores: torch.Tensor, dropout: float, generator: torch.Generator) -> torch.Tensor:
    """Dropout's mask, scaled."""
    return torch.empty_like(scores).bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)
