"""Our own beam search as the engine: whatever the model, and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from tandem.cluster.devices import explain_out_of_memory
from tandem.config import SearchConfig
from tandem.model.search import beam_search, sentences_at_once
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
        for batch in token_batches([len(ids) for ids in sources], self._batch_tokens, most):
            with explain_out_of_memory(SMALLER_SEARCH):
                translated = beam_search(
                    self._model, [sources[index] for index in batch], self._search.beam, self._search.length_penalty
                )
            for index, ids in zip(batch, translated, strict=True):
                found[index] = ids
        return found
