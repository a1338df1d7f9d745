"""Our own beam search as the engine: whatever the model, and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tandem.cluster.devices import explain_out_of_memory
from tandem.config import SearchConfig
from tandem.model.search import search_all, sentences_at_once
from tandem.model.translation_model import TranslationModel
from tandem.training.evaluate import SMALLER_SEARCH
from tandem.translation.engine import token_batches


class TorchEngine:
    """A model in PyTorch with the search of a run."""

    name = "tandem"

    def __init__(self, model: TranslationModel, search: SearchConfig, *, batch_tokens: int | None = None) -> None:
        self.longest_source = model.config.max_length - 1  # EOS takes the last position
        self._model, self._search, self._batch_tokens = model, search, batch_tokens

    def translate(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in sources]
        most = sentences_at_once(self._model, self._search)
        batches = token_batches([len(ids) for ids in sources], self._batch_tokens, most)
        texts = [[sources[index] for index in batch] for batch in batches]
        with explain_out_of_memory(SMALLER_SEARCH):
            translated = search_all(self._model, texts, self._search)
        for index, ids in zip(chain.from_iterable(batches), chain.from_iterable(translated), strict=True):
            found[index] = ids
        return found
