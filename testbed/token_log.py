"""A file that gains a line with the number of target tokens for every step of an optimizer of PyTorch.

Trainings of other programs count with it in their own environments, so nothing here knows Tandem.
"""

from __future__ import annotations

from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook


class TokenLog:
    """Sums the tokens of the batches until whichever optimizer of this process has taken its step."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._tokens = 0
        register_optimizer_step_post_hook(self._write_step)

    def add(self, tokens: int) -> None:
        """Count a batch that the next step learns from."""
        self._tokens += tokens

    def _write_step(self, *_: object) -> None:
        self._file.write(f"{self._tokens}\n")
        self._tokens = 0
