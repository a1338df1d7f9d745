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
    """The best finished hypothesis of each sentence, with its length-normalised score."""

    def __init__(self, sentences: int, limit: int, device: torch.device) -> None:
        self.scores_B = torch.full((sentences,), IMPOSSIBLE, device=device)
        self.tokens_BL = torch.full((sentences, limit), PAD, device=device)

    def offer(self, scores_BC: Tensor, tokens_BCL: Tensor, sentences_B: Tensor) -> None:
        """Keep for each of these sentences the better of what there is and the best of C candidates."""
        scores_B, best_B = scores_BC.max(dim=1)
        better_B = scores_B > self.scores_B[sentences_B]
        winners_B = sentences_B[better_B]
        self.scores_B[winners_B] = scores_B[better_B]
        self.tokens_BL[winners_B, : tokens_BCL.shape[2]] = tokens_BCL[better_B, best_B[better_B]]


@torch.inference_mode()
def beam_search(model: Transformer, source_BS: Tensor, beam: int, alpha: float) -> list[list[int]]:
    """The best translation of each source, as ids without BOS and EOS; B shrinks as sentences are done."""
    batch, device = source_BS.shape[0], source_BS.device
    # Each sentence has its own limit, or its translation would depend on what it happens to be batched with.
    limits = [length_limit(pieces, model.config.max_length) for pieces in (source_BS != PAD).sum(1).tolist()]
    limits_B = torch.tensor(limits, device=device)
    largest_penalties_B = torch.tensor([length_penalty(limit, alpha) for limit in limits], device=device)
    memory = model.encode(source_BS)
    pasts = [KeyValues() for _ in model.decoder]
    weight_VD = model.output_weight().to(model.compute_dtype)
    finished = Finished(batch, max(limits), device)
    sentences_B = torch.arange(batch, device=device)
    tokens_BRL = torch.full((batch, beam, 1), BOS, device=device)
    # All but one hypothesis start as impossible, or the first step would choose R equal ones.
    alive_BR = torch.full((batch, beam), IMPOSSIBLE, device=device)
    alive_BR[:, 0] = 0
    for length in range(1, max(limits) + 1):
        hidden_BRD = model.step(tokens_BRL[:, :, -1], length - 1, pasts, memory)
        logits_BRV = F.linear(hidden_BRD, weight_VD)[:, :, : model.vocab_size].float()
        must_end_B = limits_B[sentences_B] == length if length in limits else None
        candidates_BC, parent_BC, token_BC = best_continuations(logits_BRV, alive_BR, must_end_B)
        grown_BCL = tokens_BRL.gather(1, parent_BC.unsqueeze(2).expand(-1, -1, length))
        ends_BC = token_BC == EOS
        ended_BC = candidates_BC.masked_fill(~ends_BC, IMPOSSIBLE) / length_penalty(length, alpha)
        finished.offer(ended_BC, grown_BCL[:, :, 1:], sentences_B)
        alive_BR, kept_BR = candidates_BC.masked_fill(ends_BC, IMPOSSIBLE).topk(beam, dim=1)
        tokens_BRL = torch.cat([grown_BCL, token_BC.unsqueeze(2)], dim=2)
        tokens_BRL = tokens_BRL.gather(1, kept_BR.unsqueeze(2).expand(-1, -1, length + 1))
        rows_BR = torch.arange(len(alive_BR), device=device).unsqueeze(1) * beam + parent_BC.gather(1, kept_BR)
        # Done: log-probabilities only fall and the penalty is largest at the limit, so nothing alive can win.
        hopeful_B = alive_BR[:, 0] / largest_penalties_B[sentences_B] > finished.scores_B[sentences_B]
        if not bool(hopeful_B.all()):
            going_B = hopeful_B.nonzero().squeeze(1)
            sentences_B, alive_BR, tokens_BRL, rows_BR = (
                tensor.index_select(0, going_B) for tensor in (sentences_B, alive_BR, tokens_BRL, rows_BR)
            )
            memory = memory.select(going_B)
        if not len(sentences_B):
            break
        for past in pasts:
            past.select(rows_BR.flatten())
    return [[token for token in ids if token != PAD] for ids in finished.tokens_BL.tolist()]


def best_continuations(
    logits_BRV: Tensor, alive_BR: Tensor, must_end_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The 2R best ways to go on, with their log-probability, the hypothesis they continue and their next token.

    Twice the beam: even if R of them end here, R others live on.
    """
    log_normaliser_BR1 = logits_BRV.logsumexp(-1, keepdim=True)
    logits_BRV[:, :, [PAD, BOS]] = IMPOSSIBLE
    if must_end_B is not None:
        goes_on_V = torch.arange(logits_BRV.shape[2], device=logits_BRV.device) != EOS
        logits_BRV.masked_fill_(must_end_B[:, None, None] & goes_on_V, IMPOSSIBLE)
    width = min(2 * alive_BR.shape[1], logits_BRV.shape[2])
    # The best of each hypothesis first: the normaliser then needs to be taken from a few scores, not from all.
    top_BRC, token_BRC = logits_BRV.topk(width, dim=2)
    scores_BRC = top_BRC - log_normaliser_BR1 + alive_BR.unsqueeze(2)
    candidates_BC, choice_BC = scores_BRC.flatten(1).topk(min(2 * alive_BR.shape[1], scores_BRC[0].numel()), dim=1)
    return candidates_BC, choice_BC // width, token_BRC.flatten(1).gather(1, choice_BC)


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
