"""Where the first weights of a run came from, if they are another run's; read without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The checkpoint of another run that a run began with; run.json keeps it."""

    place: str
    """What --from named, as an absolute path, by which the same command is known again."""
    run: str
    """Directory of the other run."""
    checkpoint: str
    """The checkpoint that it stood for, by its path in that run."""
    step: int
    """Step of that checkpoint."""
    bleu: float | None
    """Dev BLEU that the checkpoint was kept for, on the other run's corpus."""
    with_optimizer: bool
    """Whether Adam's means and the step were taken over, too."""
    corpus_digest: str
    """Digest of the corpus that the other run was trained on."""
    new_pieces: int
    """Pieces of the vocabulary that the other run did not have."""

    @property
    def first_step(self) -> int:
        """The step that the run begins after."""
        return self.step if self.with_optimizer else 0

    def __str__(self) -> str:
        return f"{self.run}/{self._words()}"

    @property
    def name(self) -> str:
        """The same in words for strangers, to whom the place of the run means nothing."""
        return f"{Path(self.run).name}/{self._words()}"

    def _words(self) -> str:
        said = f"{self.checkpoint} (step {self.step:,}"
        said += "" if self.bleu is None else f", BLEU {self.bleu:.2f} on its own dev set"
        said += ", with its optimizer" if self.with_optimizer else ""
        said += f", {self.new_pieces:,} new pieces" if self.new_pieces else ""
        return f"{said})"


_ORIGIN = TypeAdapter(Origin)


def origin_of(facts: Mapping[str, Any]) -> Origin | None:
    """What run.json says of a run's origin; None for one that began with weights of its own."""
    return None if facts.get("from") is None else _ORIGIN.validate_python(facts["from"])
