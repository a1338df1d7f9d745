"""What the trainings of other programs are given: a prepared corpus as text, and the settings of one of our presets.

They learn from the same pieces with the same shape of model, dropout, label smoothing and Adam. Each program cuts its
own batches; all of them count the padded positions of the longer side. Files are named by their full paths, so that a
training may run anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.shards import EncodedSide
from tandem.exporting.huggingface_weights import pegasus_config
from tandem.vocabulary import BOS, EOS
from testbed.eole_model import eole_shape, special_pieces

Precision = Literal["float32", "bfloat16"]
FOREVER = 1_000_000
# Small enough to be safe from the first step on; the speed does not depend on it.
LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class CorpusAsText:
    """The pieces of a vocabulary, one a line, and of the training pairs, separated by spaces; sources end with EOS."""

    vocabulary: Path
    source: Path
    target: Path
    pieces: list[str]
    pairs: int

    @classmethod
    def write(cls, corpus: PreparedCorpus, folder: Path) -> CorpusAsText:
        """Write the three files into an existing folder."""
        folder = folder.resolve()
        pieces, pairs = corpus.tokenizer.pieces(), corpus.pairs("train")
        sources, targets = pairs.read(range(len(pairs)))
        text = cls(folder / "vocabulary", folder / "source", folder / "target", pieces, len(pairs))
        _write_lines(text.vocabulary, pieces)
        _write_lines(text.source, (" ".join([*sentence, pieces[EOS]]) for sentence in _spoken(sources, pieces)))
        _write_lines(text.target, (" ".join(sentence) for sentence in _spoken(targets, pieces)))
        return text


@dataclass(frozen=True)
class PeerSettings:
    """How a program is to train: the preset it follows, and how a step is put together."""

    preset: Config
    text: CorpusAsText
    precision: Precision
    batch_tokens: int
    """Most positions, padding included, on the longer side of one batch."""
    batches: int
    """Batches of a step, whose gradients are accumulated."""
    eole_training: Mapping[str, Any] = field(default_factory=dict)
    """Settings of eole's own for its training, which take the place of those that follow from the preset."""

    def write_for_eole(self, path: Path) -> None:
        """Write a file as `eole train` takes it."""
        pieces = self.text.pieces
        corpus = {"path_src": str(self.text.source), "path_tgt": str(self.text.target)}
        settings = {
            "src_vocab": str(self.text.vocabulary),
            "share_vocab": True,
            **special_pieces(pieces),
            "decoder_start_token": pieces[BOS],
            "data": {"train": corpus},
            "model": eole_shape(self.preset.model),
            "training": self._eole_training(path),
        }
        path.write_text(json.dumps(settings), encoding="utf-8")  # which is YAML, too

    def _eole_training(self, path: Path) -> dict[str, Any]:
        model, optimizer = self.preset.model, self.preset.optimizer
        return {
            "model_path": f"{path}.model",
            "compute_dtype": {"float32": "fp32", "bfloat16": "bf16"}[self.precision],
            "batch_type": "tokens",
            "batch_size": self.batch_tokens,
            "accum_count": [self.batches],
            "normalization": "tokens",
            # Sort one epoch by length at a time. By default it would be nine, and a batch keeps one of equal sources.
            "bucket_size": self.text.pairs,
            # The trainer cuts its own batches, in one or two hundredths of the time. Processes that did it for it would
            # go on while it is stopped, and share memory with it that is then counted several times.
            "num_workers": 0,
            "dropout": [model.dropout],
            "attention_dropout": [model.attention_dropout],
            "label_smoothing": optimizer.label_smoothing,
            "optim": "adam",
            "adam_beta1": optimizer.beta1,
            "adam_beta2": optimizer.beta2,
            "adam_eps": optimizer.epsilon,
            "max_grad_norm": optimizer.clip_norm or 0,
            "learning_rate": LEARNING_RATE,
            "train_steps": FOREVER,
            "valid_steps": FOREVER,
            "save_checkpoint_steps": FOREVER,
            **self.eole_training,
        }

    def write_for_transformers(self, path: Path) -> None:
        """Write a file as testbed/transformers_trainer.py takes it."""
        settings = {
            "vocabulary": str(self.text.vocabulary),
            "source": str(self.text.source),
            "target": str(self.text.target),
            "batch_tokens": self.batch_tokens,
            "model": pegasus_config(self.preset.model, len(self.text.pieces), "float32"),
            "training": self._transformers_training(path),
        }
        path.write_text(json.dumps(settings), encoding="utf-8")

    def _transformers_training(self, path: Path) -> dict[str, Any]:
        optimizer = self.preset.optimizer
        return {
            "output_dir": f"{path}.model",
            "use_cpu": True,
            "bf16": self.precision == "bfloat16",
            "gradient_accumulation_steps": self.batches,
            "label_smoothing_factor": optimizer.label_smoothing,
            "adam_beta1": optimizer.beta1,
            "adam_beta2": optimizer.beta2,
            "adam_epsilon": optimizer.epsilon,
            "max_grad_norm": optimizer.clip_norm or 0,
            "learning_rate": LEARNING_RATE,
            "max_steps": FOREVER,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }


def _spoken(side: EncodedSide, pieces: list[str]) -> Iterator[list[str]]:
    """The pieces of each sentence."""
    end = 0
    for length in side.lengths.tolist():
        start, end = end, end + length
        yield [pieces[number] for number in side.ids[start:end].tolist()]


def _write_lines(path: Path, lines: Iterator[str] | list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
