"""Progress of long work on text, as a callback."""

from __future__ import annotations

from typing import Protocol


class ProgressCallback(Protocol):
    """A callback that is told how far a stage is."""

    def __call__(self, stage: str, done: int, total: int | None, unit: str = "") -> None:
        """How much of a stage is done and how much there is (None: unknown); at its end done == total.

        The unit "B" stands for bytes, which are worth a rate; other units are just counted.
        """


def no_progress(stage: str, done: int, total: int | None, unit: str = "") -> None:
    """A progress callback that does nothing."""
