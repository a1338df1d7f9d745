"""What long work on text tells whoever watches it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears how far a stage is."""

    def __call__(self, stage: str, done: int, total: int | None, unit: str = "") -> None:
        """How much of a stage is done and how much there is (None: unknown); at its end done == total.

        The unit "B" stands for bytes, which are worth a rate; other units are just counted.
        """


def unwatched(stage: str, done: int, total: int | None, unit: str = "") -> None:
    """Nobody watches."""
