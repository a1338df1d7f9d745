"""What a format of another program must do to be exported to; registry.py names those that come with Tandem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tandem.config import Config, SearchConfig
from tandem.corpus.tokenizer import Tokenizer
from tandem.model.transformer import Transformer

Quantization = Literal["float32", "float16", "int8"]
"""The number format of the weights on the disk."""


@dataclass(frozen=True)
class TrainedModel:
    """All that a format writes down: a checkpoint of a run, with its tokenizer and settings."""

    model: Transformer
    tokenizer: Tokenizer
    tokenizer_bytes: bytes
    """The SentencePiece model as it lies in the run."""
    config: Config
    languages: tuple[str, str]
    step: int

    @property
    def search(self) -> SearchConfig:
        return self.config.search

    @property
    def max_length(self) -> int:
        """Pieces a sentence may have, EOS included."""
        return self.config.model.max_length


class LoadedExport(Protocol):
    """An exported model, loaded back from the files just written."""

    program: str
    """What runs it, with its version."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line, none empty and none longer than the model knows."""

    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each target given its source, EOS included, in nats."""


class ExportFormat(Protocol):
    """Another program's form of a model: a folder of files, which may be packed into one."""

    quantizations: tuple[Quantization, ...]
    """Number formats that the program reads; the first is taken if none is asked for."""
    packages: tuple[str, ...]
    """Packages that writing needs, as they are imported."""
    suffix: str
    """The ending of the file that it is packed into; empty for a folder."""
    search_share: float
    """Share of sentences for which the program's own search may find a worse translation than ours."""

    def default_name(self, trained: TrainedModel, run: str, quantization: Quantization) -> str:
        """The name of the folder or file, where the user gives none."""

    def is_one(self, path: Path) -> bool:
        """Whether something on the disk is such an export, which may be replaced."""

    def write(self, trained: TrainedModel, quantization: Quantization, folder: Path) -> None:
        """Write all files but the model card into an empty folder."""

    def load(self, trained: TrainedModel, folder: Path) -> LoadedExport:
        """Load what was written, with the search of the run."""

    def usage(self, trained: TrainedModel, name: str) -> str:
        """How the model is used in its own world, as Markdown for the model card; `name` is its folder or file."""

    def pack(self, trained: TrainedModel, folder: Path) -> Path:
        """What is put under the final name: the folder itself, or a file made of it, beside it."""
