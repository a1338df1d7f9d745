"""A trained run as a translator of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from tandem.cluster.devices import explain_out_of_memory
from tandem.config import SearchConfig
from tandem.corpus.tokenizer import Tokenizer
from tandem.model.search import translate_ids
from tandem.model.translation_model import TranslationModel
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.evaluate import SMALLER_SEARCH
from tandem.training.run_directory import Run


class Translator:
    """Translates sentences with the weights of one checkpoint."""

    def __init__(self, model: TranslationModel, tokenizer: Tokenizer, search: SearchConfig) -> None:
        self._model, self._tokenizer, self._search = model, tokenizer, search

    @classmethod
    def load(
        cls, run: str | Path, checkpoint: str = "best", overrides: Sequence[str] = (), **search: object
    ) -> Translator:
        """Load a checkpoint of a run: `best`, `last`, `averaged`, or the path of one.

        The run's settings may be changed by overrides such as "search.beam=8", or in short `beam=8`.
        """
        opened = Run.open(Path(run), [*overrides, *(f"search.{name}={value}" for name, value in search.items())])
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = load_model(opened, choose_checkpoint(opened, checkpoint), device)
        return cls(model, opened.tokenizer(), opened.config.search)

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """The translation of each sentence, in order."""
        with explain_out_of_memory(SMALLER_SEARCH):
            found = translate_ids(self._model, self._tokenizer.encode(sentences), self._search)
        return self._tokenizer.decode([found.get(index, []) for index in range(len(sentences))])
