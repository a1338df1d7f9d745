"""Label-smoothed cross entropy, summed over the target tokens that are not padding.

The vocabulary is the largest matrix of the model, so its logits are made and used up in chunks: they never
exist for the whole batch. The gradient is formed while a chunk's softmax is at hand; backward only scales it.

Shapes: N target tokens without padding, D model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.model.batch import Batch
from tandem.model.layers import missing_rows
from tandem.model.memory_estimate import LOSS_CHUNK_ROWS
from tandem.model.translation_model import TranslationModel

# 512 rows of 8,000 bfloat16 logits are 8 MB and stay in a CPU's cache. A GPU wants fewer, larger products.
CPU_CHUNK_ROWS = 512
CUDA_CHUNK_ROWS = LOSS_CHUNK_ROWS
# Keeps the logarithm finite where a probability underflows to zero.
SMALLEST_PROBABILITY = 1e-30


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sums of the smoothed objective, scaled and unscaled, and of the negative log-likelihood.

    Backward goes through the scaled one. `factor` makes a mean of the sum; `loss_scale` lifts gradients that float16
    would round to zero.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        projection_VD: Tensor,
        labels_N: Tensor,
        smoothing: float,
        vocab_size: int,
        factor: float,
        loss_scale: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # Rows that pad the vocabulary take part in the products alone.
        padding = slice(vocab_size, None) if vocab_size < len(weight_VD) else None
        # Sums over thousands of tokens need float32, also where the weights are in half precision.
        sum_dtype = torch.promote_types(weight_VD.dtype, torch.float32)
        tokens = len(labels_N)
        if missing := missing_rows(hidden_ND):
            hidden_ND, labels_N = F.pad(hidden_ND, (0, 0, 0, missing)), F.pad(labels_N, (0, missing))
        grad_hidden_ND = torch.empty_like(hidden_ND)
        # The first chunk overwrites it.
        assert tokens, "a micro-batch without a target token"
        # A frozen one has none.
        grad_weight_VD = torch.empty_like(weight_VD, dtype=sum_dtype) if ctx.needs_input_grad[1] else None
        logit_N1, probability_N1 = (hidden_ND.new_empty(len(labels_N), 1) for _ in range(2))
        if hidden_ND.dtype == torch.float16:
            # Half of a vocabulary's probabilities are too small for float16.
            probability_N1 = probability_N1.float()
        # float16 needs its gradients scaled before they are rounded; elsewhere the products scale on the way.
        on_the_way = factor if loss_scale is None else 1.0
        scale = None if loss_scale is None else loss_scale * factor
        for place, chunk in enumerate(_chunks(hidden_ND)):
            hidden_CD, label_C1 = hidden_ND[chunk], labels_N[chunk].unsqueeze(1)
            logits_CV = hidden_CD @ projection_VD.T
            if padding is not None:
                logits_CV[:, padding] = float("-inf")
            probabilities_CV = logits_CV.softmax(-1, dtype=probability_N1.dtype)
            torch.gather(logits_CV, 1, label_C1, out=logit_N1[chunk])
            torch.gather(probabilities_CV, 1, label_C1, out=probability_N1[chunk])
            target_C1 = probability_N1[chunk] - (1 - smoothing + smoothing / vocab_size)
            # d objective / d logits = softmax - (1 - smoothing) one-hot - smoothing / V
            grad_logits_CV = _with_targets(probabilities_CV.sub_(smoothing / vocab_size), label_C1, target_C1)
            if padding is not None:
                grad_logits_CV[:, padding] = 0
            if chunk.stop > tokens:
                # Rows that only round their number up.
                grad_logits_CV[tokens - chunk.start :] = 0
            if scale is not None:
                grad_logits_CV.mul_(scale)
            grad_logits_CV = grad_logits_CV.to(hidden_ND.dtype)
            out = grad_hidden_ND[chunk]
            torch.addmm(out, grad_logits_CV, projection_VD, beta=0, alpha=on_the_way, out=out)
            if grad_weight_VD is not None:
                _add_product(grad_weight_VD, grad_logits_CV.T, hidden_CD, on_the_way, first=place == 0)
        ctx.save_for_backward(
            grad_hidden_ND[:tokens], None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype)
        )
        nll = -probability_N1[:tokens].to(sum_dtype).clamp_min(SMALLEST_PROBABILITY).log().sum()
        # The loss against the uniform distribution is the likelihood's, with the mean of a row's logits in place of the
        # target's; their sum over all rows is one product of the sum of hidden states with the mean embedding.
        mean_logits = hidden_ND.sum(0, dtype=sum_dtype) @ weight_VD[:vocab_size].mean(0, dtype=sum_dtype)
        objective = torch.add(nll, logit_N1[:tokens].sum(dtype=sum_dtype) - mean_logits, alpha=smoothing)
        ctx.mark_non_differentiable(objective, nll)
        return objective * (factor if scale is None else scale), objective, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        grad = grads[0]
        of_weight = None if grad_weight_VD is None else grad_weight_VD * grad
        return grad_hidden_ND * grad.to(grad_hidden_ND.dtype), of_weight, None, None, None, None, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor, factor: float, *, first: bool) -> None:
    """Add a product to a sum, which the first one overwrites."""
    if total.dtype == left.dtype:
        torch.addmm(total, left, right, beta=0 if first else 1, alpha=factor, out=total)
    elif first:
        total.copy_(left @ right).mul_(factor)
    else:
        total.add_(left @ right, alpha=factor)


def _with_targets(values_CV: Tensor, label_C1: Tensor, target_C1: Tensor) -> Tensor:
    """Set the value at each row's label; on a processor `scatter_` would copy all of the values for that."""
    row_starts = torch.arange(0, values_CV.numel(), values_CV.shape[1], device=values_CV.device)
    values_CV.view(-1).index_copy_(0, row_starts + label_C1.squeeze(1), target_C1.squeeze(1))
    return values_CV


def _chunks(rows: Tensor) -> Iterator[slice]:
    size = CUDA_CHUNK_ROWS if rows.is_cuda else CPU_CHUNK_ROWS
    return (slice(start, start + size) for start in range(0, len(rows), size))


class LossSums(NamedTuple):
    """Loss of a micro-batch, on the device."""

    scaled: Tensor
    """The objective times `factor` and `loss_scale`: what backward goes through."""
    objective: Tensor
    """Label-smoothed cross entropy, summed over target tokens."""
    nll: Tensor
    """Plain negative log-likelihood, summed over target tokens."""


def translation_loss(
    model: TranslationModel, batch: Batch, smoothing: float, factor: float = 1.0, loss_scale: Tensor | None = None
) -> LossSums:
    """Sums over target tokens; `factor` and `loss_scale` multiply the gradients."""
    sums = ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_states(model, batch),
        model.output_weight(),
        model.output_projection(),
        batch.labels_N,
        smoothing,
        model.vocab_size,
        factor,
        loss_scale,
    )
    return LossSums(*sums)


def hidden_states(model: TranslationModel, batch: Batch) -> Tensor:
    """The decoder's last states (N, D) where there is something to predict."""
    hidden_BTD: Tensor = model(batch.source_BS, batch.target_BT, source_padded=batch.source_padded)
    return hidden_BTD.flatten(0, 1).index_select(0, batch.places_N)


@torch.no_grad()
def exact_nll(model: TranslationModel, batch: Batch) -> Tensor:
    """Sum of the negative log-likelihood in full precision: for evaluation."""
    hidden_ND = hidden_states(model, batch)
    total = hidden_ND.new_zeros((), dtype=torch.float32)
    for chunk in _chunks(hidden_ND):
        logits_CV = F.linear(hidden_ND[chunk].float(), model.output_weight())[:, : model.vocab_size]
        total += F.cross_entropy(logits_CV, batch.labels_N[chunk], reduction="sum")
    return total
