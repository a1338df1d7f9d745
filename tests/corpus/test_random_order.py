"""Random orders are fixed for ever, and a stretch of one is a stretch of the whole."""

from __future__ import annotations

import pytest

from tandem.corpus import random_order as module
from tandem.corpus.random_order import random_order, stretch_of_random_order


def test_orders_are_fixed_for_ever() -> None:
    assert random_order(10, 1).tolist() == [9, 2, 4, 7, 5, 0, 8, 6, 3, 1]
    assert random_order(10, 1, 2).tolist() != random_order(10, 1).tolist()


@pytest.mark.parametrize("margin", [module._MARGIN, 0.0])
def test_a_stretch_of_a_random_order(monkeypatch: pytest.MonkeyPatch, margin: float) -> None:
    """Also where the first guess is too narrow."""
    monkeypatch.setattr(module, "_MARGIN", margin)
    for size in (1, 2, 3, 50, 3000):
        for start, end in {(0, 1), (0, size), (size - 1, size), (size // 3, size // 2 + 1)}:
            for seed in range(20):
                stretch = stretch_of_random_order(start, end, size, seed, 3)
                assert stretch.tolist() == random_order(size, seed, 3)[start:end].tolist()
