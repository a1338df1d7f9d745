"""Beam search with a key-value cache, for a batch of sentences at once.

Shapes: B sentences, R hypotheses a sentence (the beam), V vocabulary, L positions decoded so far.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tandem.config import SearchConfig
from tandem.model.length_rules import length_limit, length_penalty
from tandem.model.parallel_passes import ParallelPasses
from tandem.model.translation_model import SEARCH_SENTENCES, DecoderState, TranslationModel
from tandem.vocabulary import BOS, EOS, PAD

IMPOSSIBLE = float("-inf")
# Positions after which the host looks which sentences are done. To a GPU, waiting for the answer costs more than a few
# positions of sentences that are done.
LOOK_EVERY = {"cpu": 1, "cuda": 8}
# Searches in parallel on a processor: each holds keys, values and logits of its own, some hundred MB.
MOST_SEARCHES = 8


class Finished:
    """The best finished hypothesis of each sentence, with its length-normalised score."""

    def __init__(self, sentences: int, limit: int, device: torch.device) -> None:
        self.scores_B = torch.full((sentences,), IMPOSSIBLE, device=device)
        self.tokens_BL = torch.full((sentences, limit), PAD, device=device)

    def offer(self, scores_BC: Tensor, tokens_BCL: Tensor, sentences_B: Tensor) -> None:
        """Replace what there is of these sentences by the best of C candidates, where that is better."""
        scores_B, best_B = scores_BC.max(dim=1)
        length = tokens_BCL.shape[2]
        rows_B11 = best_B[:, None, None].expand(-1, 1, length)
        found_BL = tokens_BCL.gather(1, rows_B11).squeeze(1)
        so_far_B, tokens_BL = self.scores_B.index_select(0, sentences_B), self.tokens_BL.index_select(0, sentences_B)
        better_B = scores_B > so_far_B
        # Later hypotheses are longer, so a better one covers all of what it replaces.
        tokens_BL[:, :length] = torch.where(better_B[:, None], found_BL, tokens_BL[:, :length])
        self.scores_B.index_copy_(0, sentences_B, torch.where(better_B, scores_B, so_far_B))
        self.tokens_BL.index_copy_(0, sentences_B, tokens_BL)


@torch.inference_mode()
def beam_search(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    beam: int,
    alpha: float,
    check: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """The best translation of each source; ids without BOS and EOS. B shrinks as sentences are done.

    `check` is called at every position; what it raises ends the search.
    """
    batch, device = len(sources), model.device
    # Each sentence has its own limit, or its translation would depend on what it happens to be batched with.
    limits = [length_limit(len(ids) + 1, model.config.max_length) for ids in sources]
    limits_B = torch.tensor(limits).to(device)
    largest_penalties_B = torch.tensor([length_penalty(limit, alpha) for limit in limits]).to(device)
    state = _encoded(model, sources)
    projection_VD = model.output_projection()
    finished = Finished(batch, max(limits), device)
    sentences_B = torch.arange(batch, device=device)
    tokens_BRL = torch.full((batch, beam, 1), BOS, device=device)
    # All but one hypothesis start as impossible: the first step would choose R equal ones.
    alive_BR = torch.full((batch, beam), IMPOSSIBLE, device=device)
    alive_BR[:, 0] = 0
    look_every = LOOK_EVERY[device.type]
    for length in range(1, max(limits) + 1):
        check()
        hidden_BRD = model.step(tokens_BRL[:, :, -1], length - 1, state)
        logits_BRV = F.linear(hidden_BRD, projection_VD)[:, :, : model.vocab_size].float()
        must_end_B = limits_B.index_select(0, sentences_B) <= length if length >= min(limits) else None
        candidates_BC, parent_BC, token_BC = best_continuations(logits_BRV, alive_BR, must_end_B, may_end=length > 1)
        grown_BCL = tokens_BRL.gather(1, parent_BC.unsqueeze(2).expand(-1, -1, length))
        ends_BC = token_BC == EOS
        ended_BC = candidates_BC.masked_fill(~ends_BC, IMPOSSIBLE) / length_penalty(length, alpha)
        finished.offer(ended_BC, grown_BCL[:, :, 1:], sentences_B)
        alive_BR, kept_BR = candidates_BC.masked_fill(ends_BC, IMPOSSIBLE).topk(beam, dim=1)
        tokens_BRL = torch.cat([grown_BCL, token_BC.unsqueeze(2)], dim=2)
        tokens_BRL = tokens_BRL.gather(1, kept_BR.unsqueeze(2).expand(-1, -1, length + 1))
        rows_BR = torch.arange(len(alive_BR), device=device).unsqueeze(1) * beam + parent_BC.gather(1, kept_BR)
        if length % look_every == 0:
            # Done: log-probabilities only fall and the penalty is largest at the limit, so nothing alive can win.
            hopes_B = alive_BR[:, 0] / largest_penalties_B.index_select(0, sentences_B)
            hopeful = (hopes_B > finished.scores_B.index_select(0, sentences_B)).tolist()
            if not any(hopeful):
                break
            if not all(hopeful):
                going_B = torch.tensor([place for place, hope in enumerate(hopeful) if hope]).to(device)
                sentences_B, alive_BR, tokens_BRL, rows_BR = (
                    tensor.index_select(0, going_B) for tensor in (sentences_B, alive_BR, tokens_BRL, rows_BR)
                )
                state.select_sentences(going_B)
        state.select_hypotheses(rows_BR.flatten())
    return [[token for token in ids if token != PAD] for ids in finished.tokens_BL.tolist()]


def _encoded(model: TranslationModel, sources: Sequence[Sequence[int]]) -> DecoderState:
    rows = [torch.tensor([*ids, EOS]) for ids in sources]
    source_BS = pad_sequence(rows, batch_first=True, padding_value=PAD).to(model.device)
    return model.encode(source_BS, padded=len(set(map(len, rows))) > 1)


def best_continuations(
    logits_BRV: Tensor, alive_BR: Tensor, must_end_B: Tensor | None, *, may_end: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The 2R best continuations: log-probability, the hypothesis they continue, next token. R of them may end here.

    None may end at the first position. To end there is unlikely, but the wider the beam, the more often it survives
    until everything longer has become less likely still: a sentence would vanish.
    """
    log_normaliser_BR1 = logits_BRV.logsumexp(-1, keepdim=True)
    for never in (PAD, BOS) if may_end else (PAD, BOS, EOS):
        logits_BRV[:, :, never] = IMPOSSIBLE
    if must_end_B is not None:
        goes_on_V = torch.arange(logits_BRV.shape[2], device=logits_BRV.device) != EOS
        logits_BRV.masked_fill_(must_end_B[:, None, None] & goes_on_V, IMPOSSIBLE)
    width = min(2 * alive_BR.shape[1], logits_BRV.shape[2])
    # The best of each hypothesis first: the normaliser then needs to be taken from a few scores, not from all.
    top_BRC, token_BRC = logits_BRV.topk(width, dim=2)
    scores_BRC = top_BRC - log_normaliser_BR1 + alive_BR.unsqueeze(2)
    candidates_BC, choice_BC = scores_BRC.flatten(1).topk(min(2 * alive_BR.shape[1], scores_BRC[0].numel()), dim=1)
    return candidates_BC, choice_BC // width, token_BRC.flatten(1).gather(1, choice_BC)


def sentences_at_once(model: TranslationModel, search: SearchConfig) -> int:
    """Sentences that a search takes together; `auto` on a GPU goes by the memory that holds no tensor now.

    The driver's figure for free memory leaves out what PyTorch keeps for later use.
    """
    if search.batch_sentences != "auto":
        return search.batch_sentences
    device = model.device
    if device.type != "cuda":
        return SEARCH_SENTENCES
    free = torch.cuda.get_device_properties(device).total_memory - torch.cuda.memory_allocated(device)
    return model.largest_search_batch(search.beam, free)


def translate_ids(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    search: SearchConfig,
    share: slice = slice(None),
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    at_once: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> dict[int, list[int]]:
    """Translations by index. Sentences of like length go together; `share` picks some of these batches.

    Processes that share the work must agree on the size of batches (`at_once`). `progress` is called with the number
    of batches done and of all, `check` at every position of a search: what it raises ends all of them.
    """
    longest = model.config.max_length - 1  # EOS takes the last position
    # An empty line needs no model to be translated into an empty line.
    by_length = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -len(sources[i]))
    size = sentences_at_once(model, search) if at_once is None else at_once
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)][share]
    found = search_all(model, [[sources[i][:longest] for i in batch] for batch in batches], search, progress, check)
    return dict(zip(chain.from_iterable(batches), chain.from_iterable(found), strict=True))


def search_all(
    model: TranslationModel,
    batches: Sequence[Sequence[Sequence[int]]],
    search: SearchConfig,
    progress: Callable[[int, int], None] = lambda done, total: None,
    check: Callable[[], None] = lambda: None,
) -> list[list[list[int]]]:
    """The translations of each batch; on a processor several are searched in parallel.

    The longest should come first, so that no search is left alone with it at the end.
    """
    searches = min(torch.get_num_threads(), MOST_SEARCHES, len(batches)) if model.device.type == "cpu" else 1
    waiting = deque(range(len(batches)))
    found: dict[int, list[list[int]]] = {}
    caller = threading.get_ident()

    def work() -> None:
        while waiting:
            try:
                batch = waiting.popleft()
            except IndexError:  # another search was faster
                return
            try:
                found[batch] = beam_search(model, batches[batch], search.beam, search.length_penalty, check)
            except BaseException:
                waiting.clear()  # the others end, too
                raise
            if threading.get_ident() == caller:
                progress(len(found), len(batches))

    if searches > 1:
        ParallelPasses(searches).run([work] * searches, range(searches))  # a search draws no random numbers
    else:
        work()
    return [found[batch] for batch in range(len(batches))]
