"""Translations scored by a COMET model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import tandem
from tandem.cluster.devices import explain_out_of_memory, local_device
from tandem.comet.comet_folder import CometFolder
from tandem.comet.estimator import CometEstimator
from tandem.comet.xlm_roberta import XlmrTokenizer, padded
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.errors import TandemError
from tandem.scoring import COMET, RESAMPLINGS, SEED, TAIL, Score

# Sentences scored at once; more would bring nothing on a processor, and fit no small card.
BATCH = 16


class CometScorer:
    """A COMET model in memory."""

    def __init__(self, path: Path) -> None:
        self._folder = CometFolder.open(path)
        self._tokenizer = XlmrTokenizer(self._folder.pieces, self._folder.encoder)
        self._device = local_device(0)
        self._model = CometEstimator.load(self._folder).to(self._device)

    def score(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        references: Sequence[str],
        progress: ProgressCallback = no_progress,
    ) -> Score:
        """The mean of the sentences' scores, with the interval of its bootstrap resamplings."""
        if not len(sources) == len(translations) == len(references):
            raise TandemError(
                f"{len(sources):,} sources, {len(translations):,} translations and {len(references):,} references; "
                "give a line of each for every sentence"
            )
        if not sources:
            raise TandemError("no lines to score; give files that are not empty")
        scores = self.sentence_scores(sources, translations, references, progress)
        places = np.random.default_rng(SEED).integers(len(scores), size=(RESAMPLINGS, len(scores)))
        means = np.sort(scores[places].mean(1))
        outside = RESAMPLINGS // TAIL
        interval = (means[-outside - 1] - means[outside]) / 2
        return Score(COMET, float(scores.mean()), float(means.mean()), float(interval), self.signature)

    @property
    def signature(self) -> str:
        """Which model, by name and digest, computed how."""
        name = self._folder.path.resolve().name
        parts = ["nrefs:1", f"bs:{RESAMPLINGS}", f"seed:{SEED}", f"model:{name}", f"sha256:{self._folder.digest}"]
        return "|".join([*parts, f"class:{self._folder.estimator.class_identifier}", f"tandem:{tandem.__version__}"])

    @torch.inference_mode()
    def sentence_scores(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        references: Sequence[str],
        progress: ProgressCallback = no_progress,
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """A score for each sentence, in their order."""
        texts = [[self._tokenizer.encode(line) for line in side] for side in (sources, translations, references)]
        # Sentences of like length together, so that little is padding.
        order = sorted(range(len(sources)), key=lambda index: max(len(side[index]) for side in texts))
        scores = np.empty(len(sources))
        with explain_out_of_memory("score on another machine; this model does not fit here"):
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = [padded([side[row] for row in rows]).to(self._device) for side in texts]
                scores[rows] = self._model(*batch).double().cpu().numpy()
                progress("score with COMET", start + len(rows), len(order))
        return scores
