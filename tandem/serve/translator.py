"""A trained model as a translator of text."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tandem.cluster.devices import memory_explained
from tandem.config import SearchConfig
from tandem.corpus.tokenizer import Tokenizer
from tandem.model.search import translate_ids
from tandem.model.transformer import Transformer
from tandem.train.checkpoint import Checkpoint
from tandem.train.evaluate import SMALLER_SEARCH
from tandem.train.restore import load_model
from tandem.train.run import Run


class Translator:
    """Translates sentences with the weights of one checkpoint."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, search: SearchConfig) -> None:
        self._model, self._tokenizer, self._search = model, tokenizer, search

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """The translation of each sentence, in order."""
        with memory_explained(SMALLER_SEARCH):
            found = translate_ids(self._model, self._tokenizer.encode(sentences), self._search)
        return self._tokenizer.decode([found.get(index, []) for index in range(len(sentences))])


def load_translator(run: Run, checkpoint: Checkpoint) -> Translator:
    """The translator that a checkpoint of a run makes."""
    tokenizer = run.tokenizer()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Translator(
        load_model(checkpoint, run.config.model, tokenizer.vocab_size, device), tokenizer, run.config.search
    )
