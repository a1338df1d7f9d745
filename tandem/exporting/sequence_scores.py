"""The log-probabilities that our own model gives to translations, whoever made them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from tandem.model.translation_model import TranslationModel
from tandem.translation.ctranslate2_weights import NEVER
from tandem.translation.engine import token_batches
from tandem.vocabulary import BOS, EOS, PAD

# Pieces scored together, padding counted: their logits over a large vocabulary take a few hundred MB.
BATCH_TOKENS = 2048


@torch.inference_mode()
def log_probabilities(
    model: TranslationModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[float]:
    """The log-probability of each target given its source, EOS included, in nats; ids without BOS and EOS."""
    found = [0.0] * len(sources)
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    for batch in token_batches(lengths, BATCH_TOKENS):
        source_BS = _padded([[*sources[index], EOS] for index in batch], model)
        labels_BT = _padded([[*targets[index], EOS] for index in batch], model)
        target_BT = _padded([[BOS, *targets[index]] for index in batch], model)
        logits_BTV = F.linear(model(source_BS, target_BT), model.output_projection())[..., : model.vocab_size]
        logits_BTV[..., [PAD, BOS]] = NEVER  # as in the exported model, which knows no other way to forbid them
        chosen_BT = logits_BTV.float().log_softmax(-1).gather(2, labels_BT.unsqueeze(2)).squeeze(2)
        sums_B = chosen_BT.masked_fill(labels_BT == PAD, 0).sum(1)
        for index, value in zip(batch, sums_B.tolist(), strict=True):
            found[index] = value
    return found


def _padded(rows: Sequence[Sequence[int]], model: TranslationModel) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(model.device)
