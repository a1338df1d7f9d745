"""Label-smoothed cross entropy, summed over the target tokens that are not padding.

The vocabulary is the largest matrix of the model, so its logits are made and used up in chunks: they never
exist for the whole batch. The gradient is formed while a chunk's softmax is at hand; backward only scales it.

Shapes: N target tokens without padding, D model width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.corpus.tokenizer import PAD
from tandem.model.transformer import Transformer

# 512 rows of 8,000 bfloat16 logits are 8 MB: the chunk stays in the CPU's cache between its passes.
# A GPU wants fewer, larger products.
CPU_CHUNK_ROWS = 512
CUDA_CHUNK_ROWS = 8192
# Keeps the logarithm finite where a probability underflows to zero.
SMALLEST_PROBABILITY = 1e-30


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sums of the smoothed objective and of the plain negative log-likelihood over all rows."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, vocab_size: int
    ) -> tuple[Tensor, Tensor]:
        dtype = hidden_ND.dtype
        # Rows that only pad the vocabulary take part in the products and in nothing else.
        padding = slice(vocab_size, None)
        half_weight_VD = weight_VD.to(dtype)
        mean_weight_D1 = weight_VD[:vocab_size].mean(0).unsqueeze(1)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD = torch.zeros_like(weight_VD)
        objective, nll = weight_VD.new_zeros(2)
        rows = CUDA_CHUNK_ROWS if hidden_ND.is_cuda else CPU_CHUNK_ROWS
        rows_C = torch.arange(rows, device=hidden_ND.device)
        for start in range(0, len(targets_N), rows):
            chunk = slice(start, start + rows)
            hidden_CD, target_C1 = hidden_ND[chunk], targets_N[chunk].unsqueeze(1)
            logits_CV = hidden_CD @ half_weight_VD.T
            logits_CV[:, padding] = float("-inf")
            probabilities_CV = logits_CV.softmax(-1)
            nll_C1 = target_nll(logits_CV, probabilities_CV, target_C1)
            # log sum exp(logits) - mean(logits), the loss against the uniform distribution; the mean over
            # the vocabulary is one dot product with the mean embedding.
            log_normaliser_C1 = logits_CV.gather(1, target_C1).float() + nll_C1
            uniform_C1 = log_normaliser_C1 - hidden_CD.to(weight_VD.dtype) @ mean_weight_D1
            nll += nll_C1.sum()
            objective += ((1 - smoothing) * nll_C1 + smoothing * uniform_C1).sum()
            # d objective / d logits = softmax - (1 - smoothing) one-hot - smoothing / V
            grad_logits_CV = probabilities_CV.sub_(smoothing / vocab_size)
            grad_logits_CV[:, padding] = 0
            # By index, because scatter_add_ copies the whole chunk first.
            grad_logits_CV[rows_C[: len(target_C1)], target_C1.squeeze(1)] -= 1 - smoothing
            torch.mm(grad_logits_CV, half_weight_VD, out=grad_hidden_ND[chunk])
            grad_weight_VD += grad_logits_CV.T @ hidden_CD
        ctx.save_for_backward(grad_hidden_ND, grad_weight_VD)
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        grad = grads[0]
        return grad_hidden_ND * grad.to(grad_hidden_ND.dtype), grad_weight_VD * grad, None, None, None


def target_nll(logits_CV: Tensor, probabilities_CV: Tensor, target_C1: Tensor) -> Tensor:
    """Negative log-likelihood of the targets.

    A bfloat16 softmax rounds each probability by at most 0.4 %, without bias: over a batch's thousands of tokens that
    is far below the loss's own noise, and five times faster than float32. float16, whose small probabilities vanish,
    has to go the long way.
    """
    if logits_CV.dtype == torch.float16:
        return logits_CV.float().logsumexp(-1, keepdim=True) - logits_CV.gather(1, target_C1).float()
    return -probabilities_CV.gather(1, target_C1).float().clamp_min(SMALLEST_PROBABILITY).log()


class TranslationLoss(nn.Module):
    """The model together with its loss: what is trained, and what gradients are exchanged for."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over target tokens of the smoothed objective and of the plain negative log-likelihood.

        `target_BT` starts with BOS and ends with EOS, so each position predicts the one after it.
        """
        labels_BT = target_BT[:, 1:]
        real_BT = labels_BT != PAD
        hidden_ND = self.model(source_BS, target_BT[:, :-1])[real_BT]
        weight_VD = self.model.output_weight()
        sums: tuple[Tensor, Tensor] = ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden_ND, weight_VD, labels_BT[real_BT], self.smoothing, self.model.vocab_size
        )
        return sums


@torch.no_grad()
def exact_nll(model: Transformer, source_BS: Tensor, target_BT: Tensor) -> tuple[float, int]:
    """Sum of the negative log-likelihood in full precision, and the number of target tokens: for evaluation."""
    labels_BT = target_BT[:, 1:]
    real_BT = labels_BT != PAD
    hidden_ND, labels_N = model(source_BS, target_BT[:, :-1])[real_BT], labels_BT[real_BT]
    rows = CUDA_CHUNK_ROWS if hidden_ND.is_cuda else CPU_CHUNK_ROWS
    total = 0.0
    for start in range(0, len(labels_N), rows):
        chunk = slice(start, start + rows)
        logits_CV = F.linear(hidden_ND[chunk].float(), model.output_weight())[:, : model.vocab_size]
        total += float(F.cross_entropy(logits_CV, labels_N[chunk], reduction="sum"))
    return total, len(labels_N)
