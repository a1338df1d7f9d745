"""CTranslate2 as the engine: the same weights, several times as fast on processors, and in eight bits if asked.

Its search differs from ours: it ranks by log-probability / length^p, and stops once a number of hypotheses is finished.
Asked for twice as many hypotheses, ranked again by our own penalty, it finds the same translation in all but a few of
a thousand sentences.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tandem.config import SearchConfig
from tandem.errors import TandemError
from tandem.model.length_rules import length_limit, length_penalty
from tandem.translation.engine import Hypothesis, token_batches

# Finished hypotheses that the search waits for, as a multiple of the beam: our own search goes on until nothing alive
# can win, which this comes near.
PATIENCE = 2
# Pieces translated together, padding counted: the fastest of 512, 1,024, 2,048 and 4,096 with `small` on two cores.
BATCH_TOKENS = 1024


class CTranslate2Engine:
    """A CTranslate2 model with the search of a run; `threads` batches are translated at the same time."""

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        pieces: Sequence[str],
        search: SearchConfig,
        *,
        max_length: int,
        batch_tokens: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.longest_source = max_length - 1  # EOS takes the last position
        self._max_length, self._search = max_length, search
        self.batch_tokens = batch_tokens or BATCH_TOKENS
        self._most = None if search.batch_sentences == "auto" else search.batch_sentences
        self._pieces, self._numbers = pieces, {piece: number for number, piece in enumerate(pieces)}
        # A thread a batch, not several threads for one: nothing then waits at barriers inside a batch.
        self._translator = _load(folder, threads or os.cpu_count() or 1)
        # To find what our own search finds costs speed. It would be wasted on weights in eight bits:
        # their rounding changes more translations than that.
        self._patience = 1 if "int8" in self._translator.compute_type else PATIENCE
        _check_vocabulary(folder, pieces)

    def translate(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        return [found[0].ids if found else [] for found in self.hypotheses(sources)]

    def hypotheses(self, sources: Sequence[Sequence[int]], count: int = 1) -> list[list[Hypothesis]]:
        """Translations of each sentence, best first and at most `count`; none of an empty one.

        The first is the same whatever the count: if others need a wider search, they come from a second one.
        """
        found = self._search_with(sources, self._search.beam)
        if (beam := self.beam_for(count)) != self._search.beam:
            wider = self._search_with(sources, beam)
            found = [_with_others(own, others) for own, others in zip(found, wider, strict=True)]
        return [hypotheses[:count] for hypotheses in found]

    def beam_for(self, count: int) -> int:
        """How wide the search must be to find so many translations: it finds more than it keeps at a time."""
        beam = self._search.beam
        return beam if count <= (self._patience * beam if beam > 1 else 1) else count

    def attention(self, source: Sequence[int], target: Sequence[int]) -> list[list[float]]:
        """How much each piece of a translation attends to each piece of its source."""
        [result] = self._translator.translate_batch(
            [self._named(source)],
            target_prefix=[self._named(target)],
            beam_size=1,
            max_decoding_length=len(target) + 1,
            return_attention=True,
        )
        return [list(row[: len(source)]) for row in result.attention[0][: len(target)]]

    def log_probabilities(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """The log-probability of each translation given its source, EOS included, in nats."""
        scored = self._translator.score_batch(
            [self._named(ids) for ids in sources],
            [self._named(ids) for ids in targets],
            max_batch_size=self.batch_tokens,
            batch_type="tokens",
            max_input_length=0,
        )
        return [float(sum(result.log_probs)) for result in scored]

    def _search_with(self, sources: Sequence[Sequence[int]], beam: int) -> list[list[Hypothesis]]:
        pending: list[tuple[int, Any]] = []
        for batch in token_batches([len(ids) for ids in sources], self.batch_tokens, self._most):
            submitted = self._submit([sources[index] for index in batch], beam)
            pending += zip(batch, submitted, strict=True)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for index, result in pending:
            found[index] = self._ranked(result.result(), self._limit(sources[index]))
        return found

    def _submit(self, sources: Sequence[Sequence[int]], beam: int) -> list[Any]:
        limit = max(map(self._limit, sources))
        patience = self._patience if beam > 1 else 1  # a beam of one is a greedy search, which has nothing to wait for
        submitted: list[Any] = self._translator.translate_batch(
            [self._named(ids) for ids in sources],
            beam_size=beam,
            patience=patience,
            num_hypotheses=patience * beam if beam > 1 else 1,
            length_penalty=self._search.length_penalty,
            max_decoding_length=limit,
            min_decoding_length=1,  # a sentence must not vanish
            max_input_length=0,
            return_scores=True,
            asynchronous=True,
        )
        return submitted

    def _limit(self, source: Sequence[int]) -> int:
        return length_limit(len(source) + 1, self._max_length)

    def _ranked(self, result: Any, limit: int) -> list[Hypothesis]:
        """By our own length penalty; what is longer than its source allows comes only from a batch with longer ones."""
        alpha = self._search.length_penalty
        found = list(zip(result.hypotheses, result.scores, strict=True))
        found = [one for one in found if len(one[0]) <= limit] or [(found[0][0][:limit], found[0][1])]
        hypotheses = []
        for pieces, score in found:
            length = len(pieces) + 1  # EOS counts
            log_probability = score * length**alpha
            ids = [self._numbers[piece] for piece in pieces]
            hypotheses.append(Hypothesis(ids, log_probability / length_penalty(length, alpha)))
        return sorted(hypotheses, key=lambda hypothesis: hypothesis.score, reverse=True)

    def _named(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[number] for number in ids]


def _with_others(own: list[Hypothesis], wider: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The best of the run's own search, and then what a wider one found beside it."""
    return own[:1] + [each for each in wider if each.ids != own[0].ids]


def _load(folder: Path, threads: int) -> Any:
    try:
        from ctranslate2 import Translator, set_log_level
    except ImportError as error:
        raise TandemError(
            "CTranslate2 is not installed; pip install 'tandem-nmt[export]', or use --engine tandem"
        ) from error
    set_log_level(logging.ERROR)  # it warns of float16, which a processor computes in float32
    try:
        return Translator(str(folder), device="cpu", inter_threads=threads, intra_threads=1)
    except (RuntimeError, ValueError) as error:
        raise TandemError(f"{folder}: not a CTranslate2 model, or damaged ({error}); export it again") from error


def _check_vocabulary(folder: Path, pieces: Sequence[str]) -> None:
    """Refuse a model whose vocabulary is not the tokenizer's: it would translate into nonsense without complaint."""
    try:
        known = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        known = None
    if known != list(pieces):
        raise TandemError(f"{folder}: a CTranslate2 model of another vocabulary than its tokenizer's; export it again")
