"""The pieces a Transformer is built from: dropout, attention and the feed-forward block.

The CPU paths are there because they were measured: at sentence lengths, the backward pass of bfloat16
`scaled_dot_product_attention` is several times slower than three plain products, and `F.dropout` takes eight times as
long to draw its mask as the byte mask below.

Layers compute in the number format of their weights; half-precision training goes through a copy of the model in that
format (`flat_weights.py`). `torch.autocast`, which casts every weight at every use, was a third slower over all.

Shapes: B batch, T target positions, S source positions, D model width, H heads, K width of a head, N rows: one for each
position of each sentence, and some more that stand for nothing (`flatten_rows`).
"""

from __future__ import annotations

import math
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BYTE_VALUES = 256
# oneDNN compiles a kernel for every number of rows that it has not met: a quarter of the time of such a product.
# Rounded up to this, batches of all shapes have few numbers of rows, for which there is a kernel already.
TILE_ROWS = 64
# Numbers of 32 bits in the widest vector that processors work with, AVX-512's.
VECTOR_FLOATS = 16


class RandomNumbers(threading.local):
    """Where a thread's dropout draws its masks from: PyTorch's own generator is one for all threads."""

    generator: torch.Generator | None = None


RANDOM_NUMBERS = RandomNumbers()


def _drawn_bytes(x: Tensor) -> Tensor:
    """A random byte for each element: what is below the number of dropped ones is dropped.

    So the rate is rounded to 1/256, and a byte is all that backward has to remember of an element.
    """
    # One 64-bit draw serves eight elements; the full range keeps the top byte uniform.
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=RANDOM_NUMBERS.generator)
    return draws.view(torch.uint8)[: x.numel()].view(x.shape)


def _mask(drawn: Tensor, dropped_bytes: int, dtype: torch.dtype) -> Tensor:
    """One where an element is kept, zero elsewhere."""
    # Without `out` the comparison would make booleans, which take five times as long to compare and to convert.
    return torch.ge(drawn, dropped_bytes, out=torch.empty(drawn.shape, dtype=dtype))


def _scale(dropped_bytes: int) -> float:
    """What is kept is multiplied by this, which keeps the expectation."""
    return BYTE_VALUES / (BYTE_VALUES - dropped_bytes)


def _dropped_bytes(rate: float) -> int:
    # Whatever the rate, one value in 256 is kept: without any the scale would be infinite.
    return min(round(rate * BYTE_VALUES), BYTE_VALUES - 1)


def _dropped(x: Tensor, drawn: Tensor, dropped_bytes: int) -> Tensor:
    """What is left of `x`, and of its gradient."""
    return _mask(drawn, dropped_bytes, x.dtype).mul_(x).mul_(_scale(dropped_bytes))


class ByteDropout(torch.autograd.Function):
    """Dropout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped_bytes: int) -> Tensor:
        drawn = _drawn_bytes(x)
        ctx.save_for_backward(drawn)
        ctx.dropped_bytes = dropped_bytes
        return _dropped(x, drawn, dropped_bytes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (drawn,) = ctx.saved_tensors
        return _dropped(grads[0], drawn, ctx.dropped_bytes), None


class AddByteDropout(torch.autograd.Function):
    """A sum whose second part is dropped out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Tensor, dropped_bytes: int) -> Tensor:
        drawn = _drawn_bytes(change)
        ctx.save_for_backward(drawn)
        ctx.dropped_bytes = dropped_bytes
        return torch.addcmul(x, change, _mask(drawn, dropped_bytes, x.dtype), value=_scale(dropped_bytes))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (drawn,) = ctx.saved_tensors
        return grads[0], _dropped(grads[0], drawn, ctx.dropped_bytes), None


class ReluByteDropout(torch.autograd.Function):
    """ReLU and dropout: what is above zero afterwards was above zero before and kept, so nothing else is remembered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped_bytes: int) -> Tensor:
        kept = _dropped(x.relu(), _drawn_bytes(x), dropped_bytes)
        ctx.save_for_backward(kept)
        ctx.scale = _scale(dropped_bytes)
        return kept

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grads[0], kept, 0.0).mul_(ctx.scale), None


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Zero elements with probability `rate` while training, and scale up the rest."""
    if not training or rate == 0.0:
        return x
    if x.is_cuda:
        return F.dropout(x, rate)
    dropped: Tensor = ByteDropout.apply(x, _dropped_bytes(rate))  # type: ignore[no-untyped-call]
    return dropped


def add_dropout(x: Tensor, change: Tensor, rate: float, training: bool) -> Tensor:
    """Add to `x` a change that is dropped out."""
    if not training or rate == 0.0 or x.is_cuda:
        return x + dropout(change, rate, training)
    added: Tensor = AddByteDropout.apply(x, change, _dropped_bytes(rate))  # type: ignore[no-untyped-call]
    return added


def relu_dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Set what is below zero to zero, then drop out."""
    if not training or rate == 0.0 or x.is_cuda:
        return dropout(F.relu(x), rate, training)
    kept: Tensor = ReluByteDropout.apply(x, _dropped_bytes(rate))  # type: ignore[no-untyped-call]
    return kept


class Attention(torch.autograd.Function):
    """Attention as plain products, which keeps little for backward: its inputs, the weights, and a byte for each.

    Shapes: N stands for all heads of all sentences, whose products are made together.
    """

    @staticmethod
    def forward(
        ctx: Any, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None, dropped_bytes: int
    ) -> Tensor:
        q_NTK, k_NSK, v_NSK = (part.flatten(0, 1) for part in (q_BHTK, k_BHSK, v_BHSK))
        scale = 1 / math.sqrt(q_NTK.shape[-1])
        if mask is None:
            scores_NTS = (q_NTK * scale).bmm(k_NSK.transpose(1, 2))
        else:
            # The products are added to the mask, on the way.
            scores_NTS = mask.expand(*q_BHTK.shape[:3], k_NSK.shape[1]).flatten(0, 1)
            scores_NTS = torch.baddbmm(scores_NTS, q_NTK, k_NSK.transpose(1, 2), alpha=scale)
        weights_NTS = _softmax(scores_NTS)
        drawn_NTS = _drawn_bytes(weights_NTS) if dropped_bytes else None
        ctx.save_for_backward(q_NTK, k_NSK, v_NSK, weights_NTS, drawn_NTS)
        ctx.shapes, ctx.scale, ctx.dropped_bytes = (q_BHTK.shape, k_BHSK.shape), scale, dropped_bytes
        dropped_NTS = weights_NTS if drawn_NTS is None else _dropped(weights_NTS, drawn_NTS, dropped_bytes)
        return dropped_NTS.bmm(v_NSK).view(q_BHTK.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q_NTK, k_NSK, v_NSK, weights_NTS, drawn_NTS = ctx.saved_tensors
        grad_NTK, dropped_NTS = grads[0].flatten(0, 1), weights_NTS
        grad_weights_NTS = grad_NTK.bmm(v_NSK.transpose(1, 2))
        if drawn_NTS is not None:
            dropped_NTS, grad_weights_NTS = (
                _dropped(each, drawn_NTS, ctx.dropped_bytes) for each in (weights_NTS, grad_weights_NTS)
            )
        grad_v_NSK = dropped_NTS.transpose(1, 2).bmm(grad_NTK)
        grad_scores_NTS = _softmax_backward(grad_weights_NTS, weights_NTS).mul_(ctx.scale)
        grad_q_NTK = grad_scores_NTS.bmm(k_NSK)
        grad_k_NSK = grad_scores_NTS.transpose(1, 2).bmm(q_NTK)
        queries, keys = ctx.shapes
        return grad_q_NTK.view(queries), grad_k_NSK.view(keys), grad_v_NSK.view(keys), None, None


def _softmax(scores: Tensor) -> Tensor:
    """Over the last dimension; may overwrite the scores."""
    if not _short_rows(scores):
        return scores.softmax(-1)
    powers = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return powers.div_(powers.sum(-1, keepdim=True))


def _softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """The gradient of the scores; may overwrite that of the weights."""
    if not _short_rows(weights):
        return torch._softmax_backward_data(grad, weights, -1, weights.dtype)
    grad = grad.mul_(weights)
    return grad.addcmul_(weights, grad.sum(-1, keepdim=True), value=-1)


def _short_rows(rows: Tensor) -> bool:
    """Whether PyTorch's own softmax would go element by element, which takes three times as long as five operations."""
    return rows.dtype == torch.float32 and rows.shape[-1] < VECTOR_FLOATS


def attend(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, *, mask: Tensor | None = None, causal: bool = False, rate: float
) -> Tensor:
    """Scaled dot-product attention; `rate` drops attention weights.

    `mask` is added to the scores and has their number format: CUDA's kernels take no other. With `causal` a position
    sees itself and those before it, which a GPU's kernels work out by themselves: a mask would rule Flash out.
    """
    if q_BHTK.is_cuda:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, dropout_p=rate, is_causal=causal)
    if causal:
        mask = torch.full((q_BHTK.shape[2], k_BHSK.shape[2]), float("-inf"), dtype=q_BHTK.dtype).triu(1)
    mixed: Tensor = Attention.apply(q_BHTK, k_BHSK, v_BHSK, mask, _dropped_bytes(rate))  # type: ignore[no-untyped-call]
    return mixed


def missing_rows(rows_ND: Tensor) -> int:
    """How many rows there should be more, for products to be made by kernels that are compiled already."""
    compiled = rows_ND.dtype in (torch.bfloat16, torch.float16) and not rows_ND.is_cuda
    return -len(rows_ND) % TILE_ROWS if compiled else 0


def flatten_rows(x_BTD: Tensor) -> Tensor:
    """A row for each position of each sentence; where it pays, rows of zeros at the end make a round number of them."""
    return add_missing_rows(x_BTD.flatten(0, 1))


def add_missing_rows(x_ND: Tensor) -> Tensor:
    missing = missing_rows(x_ND)
    return F.pad(x_ND, (0, 0, 0, missing)) if missing else x_ND


def unflatten_rows(x_ND: Tensor, shape: tuple[int, int]) -> Tensor:
    """Undo `flatten_rows`; the shape is that of sentences and positions."""
    batch, positions = shape
    rows = batch * positions
    # Backward of a part, even of all rows, fills a tensor with zeros and copies into it.
    return (x_ND[:rows] if len(x_ND) > rows else x_ND).view(batch, positions, -1)


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """Cut the last dimension into heads and bring them before the positions."""
    batch, positions, width = x_BTD.shape
    return x_BTD.view(batch, positions, heads, width // heads).transpose(1, 2)


def merge_heads(x_BHTK: Tensor) -> Tensor:
    """Undo `split_heads`."""
    return x_BHTK.transpose(1, 2).flatten(2)


class KeyValues:
    """Keys and values of the positions decoded so far; grows by one position a search step."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys_BHTK: Tensor, values_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest position and return all of them."""
        if self.keys is not None and self.values is not None:
            keys_BHTK = torch.cat([self.keys, keys_BHTK], dim=2)
            values_BHTK = torch.cat([self.values, values_BHTK], dim=2)
        self.keys, self.values = keys_BHTK, values_BHTK
        return keys_BHTK, values_BHTK

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        assert self.keys is not None
        assert self.values is not None
        self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


class SelfAttention(nn.Module):
    """Every position looks at the positions of its own sequence."""

    def __init__(self, width: int, heads: int, rate: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, rate
        # One product for queries, keys and values: fewer, larger matrix multiplications.
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self,
        x_ND: Tensor,
        shape: tuple[int, int],
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        past: KeyValues | None = None,
    ) -> Tensor:
        parts = unflatten_rows(self.query_key_value(x_ND), shape).chunk(3, dim=-1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        if past is not None:
            k, v = past.append(k, v)
        rate = self.rate if self.training else 0.0
        mixed_BTD = merge_heads(attend(q, k, v, mask=mask, causal=causal, rate=rate))
        mixed: Tensor = self.output(flatten_rows(mixed_BTD))
        return mixed


class CrossAttention(nn.Module):
    """Every target position looks at the encoded source."""

    def __init__(self, width: int, heads: int, rate: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, rate
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def keys_values(self, memory_ND: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Project the encoded source once; every decoding step then reuses the result."""
        parts = unflatten_rows(self.key_value(memory_ND), shape).chunk(2, dim=-1)
        keys, values = (split_heads(part, self.heads) for part in parts)
        return keys, values

    def forward(
        self, x_ND: Tensor, shape: tuple[int, int], keys_values: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        q = split_heads(unflatten_rows(self.query(x_ND), shape), self.heads)
        rate = self.rate if self.training else 0.0
        mixed: Tensor = self.output(flatten_rows(merge_heads(attend(q, *keys_values, mask=mask, rate=rate))))
        return mixed


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, at every position alike."""

    def __init__(self, width: int, inner_width: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.inner = nn.Linear(width, inner_width)
        self.output = nn.Linear(inner_width, width)

    def forward(self, x_ND: Tensor) -> Tensor:
        mixed: Tensor = self.output(relu_dropout(self.inner(x_ND), self.rate, self.training))
        return mixed
