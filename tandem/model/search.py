"""Beam search with a key-value cache, for a batch of sentences at once.

Shapes: B sentences, R hypotheses a sentence (the beam), V vocabulary, L positions decoded so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tandem.config import SearchConfig
from tandem.corpus.tokenizer import BOS, EOS, PAD
from tandem.model.layers import KeyValues
from tandem.model.transformer import Transformer

# A translation may be longer than its source, but not without end: the bound of the original recipe.
EXTRA_LENGTH = 50
IMPOSSIBLE = float("-inf")


def length_limit(source_length: int, max_length: int) -> int:
    """The most pieces a translation may have, given the source's pieces."""
    return min(source_length + EXTRA_LENGTH, max_length)


def length_penalty(length: int, alpha: float) -> float:
    """What a hypothesis' log-probability is divided by, so that longer ones have a chance."""
    return float(((5 + length) / 6) ** alpha)


class Finished:
    """The best R finished hypotheses of each sentence, with their length-normalised scores."""

    def __init__(self, scores_BR: Tensor, limit: int) -> None:
        self.scores_BR = torch.full_like(scores_BR, IMPOSSIBLE)
        self.tokens_BRL = torch.full((*scores_BR.shape, limit), PAD, device=scores_BR.device)

    def offer(self, scores_BC: Tensor, tokens_BCL: Tensor) -> None:
        """Keep the best R of what there is and these candidates (minus infinity: not a candidate)."""
        missing = self.tokens_BRL.shape[2] - tokens_BCL.shape[2]
        tokens = torch.cat([self.tokens_BRL, F.pad(tokens_BCL, (0, missing), value=PAD)], dim=1)
        scores = torch.cat([self.scores_BR, scores_BC], dim=1)
        self.scores_BR, best_BR = scores.topk(self.scores_BR.shape[1], dim=1)
        self.tokens_BRL = tokens.gather(1, best_BR.unsqueeze(2).expand(-1, -1, tokens.shape[2]))


@torch.inference_mode()
def beam_search(model: Transformer, source_BS: Tensor, beam: int, alpha: float) -> list[list[int]]:
    """The best translation of each source, as ids without BOS and EOS."""
    batch = source_BS.shape[0]
    # Each sentence has its own limit, or its translation would depend on what it happens to be batched with.
    limits = [length_limit(pieces, model.config.max_length) for pieces in (source_BS != PAD).sum(1).tolist()]
    limits_B = torch.tensor(limits, device=source_BS.device)
    largest_penalties_B = torch.tensor([length_penalty(limit, alpha) for limit in limits], device=source_BS.device)
    memory = model.encode(source_BS)
    pasts = [KeyValues() for _ in model.decoder]
    weight_DV = model.output_weight().to(model.compute_dtype).T
    # All but one hypothesis start as impossible, or the first step would choose R equal ones.
    alive_BR = torch.full((batch, beam), IMPOSSIBLE, device=source_BS.device)
    alive_BR[:, 0] = 0
    tokens_BRL = torch.full((batch, beam, 1), BOS, device=source_BS.device)
    finished = Finished(alive_BR, max(limits))
    first_row_B1 = torch.arange(batch, device=source_BS.device).unsqueeze(1) * beam
    for length in range(1, max(limits) + 1):
        hidden_BRD = model.step(tokens_BRL[:, :, -1], length - 1, pasts, memory)
        scores_BRV = (hidden_BRD @ weight_DV).float().log_softmax(-1) + alive_BR.unsqueeze(2)
        scores_BRV[:, :, [PAD, BOS]] = IMPOSSIBLE
        if length >= min(limits):
            goes_on_V = torch.arange(scores_BRV.shape[2], device=source_BS.device) != EOS
            scores_BRV.masked_fill_((limits_B <= length)[:, None, None] & goes_on_V, IMPOSSIBLE)
        # Twice the beam: even if R candidates end here, R others live on.
        candidates_BC, choice_BC = scores_BRV.flatten(1).topk(2 * beam, dim=1)
        parent_BC, token_BC = choice_BC // scores_BRV.shape[2], choice_BC % scores_BRV.shape[2]
        grown_BCL = tokens_BRL.gather(1, parent_BC.unsqueeze(2).expand(-1, -1, length))
        ends_BC = token_BC == EOS
        ended_BC = candidates_BC.masked_fill(~ends_BC, IMPOSSIBLE) / length_penalty(length, alpha)
        finished.offer(ended_BC, grown_BCL[:, :, 1:])
        alive_BR, kept_BR = candidates_BC.masked_fill(ends_BC, IMPOSSIBLE).topk(beam, dim=1)
        # No hypothesis can gain by going on: log-probabilities only fall, the penalty is largest at the limit.
        if bool((alive_BR[:, 0] / largest_penalties_B <= finished.scores_BR[:, 0]).all()):
            break
        tokens_BRL = torch.cat([grown_BCL, token_BC.unsqueeze(2)], dim=2).gather(
            1, kept_BR.unsqueeze(2).expand(-1, -1, length + 1)
        )
        rows = (first_row_B1 + parent_BC.gather(1, kept_BR)).flatten()
        for past in pasts:
            past.select(rows)
    return [[token for token in ids if token != PAD] for ids in finished.tokens_BRL[:, 0].tolist()]


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    search: SearchConfig,
    share: slice = slice(None),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, list[int]]:
    """Translations by index. Sentences of like length go together; `share` picks some of these batches.

    `progress` hears how many batches of how many are done.
    """
    longest = model.config.max_length - 1  # EOS takes the last position
    # An empty line needs no model to be translated into an empty line.
    by_length = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: len(sources[i]))
    size = search.batch_sentences
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)][share]
    translations: dict[int, list[int]] = {}
    for done, batch in enumerate(batches, 1):
        rows = [torch.tensor([*sources[i][:longest], EOS]) for i in batch]
        source_BS = pad_sequence(rows, batch_first=True, padding_value=PAD).to(model.positions.device)
        found = beam_search(model, source_BS, search.beam, search.length_penalty)
        translations.update(zip(batch, found, strict=True))
        progress(done, len(batches))
    return translations
