"""Student's t test against printed tables and a calculation by hand."""

from __future__ import annotations

import math

import pytest

from tandem.comparing.seed_spread import compare_groups, probability_within, quantile, spread_of

# Two-sided 95 % and 99 % points as every table of Student's t has them.
TABLE = [
    (1, 12.706, 63.657),
    (2, 4.303, 9.925),
    (3, 3.182, 5.841),
    (4, 2.776, 4.604),
    (5, 2.571, 4.032),
    (8, 2.306, 3.355),
    (15, 2.131, 2.947),
    (30, 2.042, 2.750),
]


@pytest.mark.parametrize(("freedom", "at_95", "at_99"), TABLE)
def test_quantiles_are_those_of_the_tables(freedom: int, at_95: float, at_99: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(at_95, abs=5e-4)
    assert quantile(0.99, freedom) == pytest.approx(at_99, abs=5e-4)
    assert probability_within(at_95, freedom) == pytest.approx(0.95, abs=2e-4)


def test_many_degrees_of_freedom_are_nearly_normal() -> None:
    assert probability_within(1.5, 1000) == pytest.approx(math.erf(1.5 / math.sqrt(2)), abs=1e-3)


def test_two_groups_by_hand() -> None:
    # Means 30.2 and 31.0, squares of deviations 0.08 and 0.02, over 4 degrees of freedom.
    found = compare_groups([30.0, 30.2, 30.4], [30.9, 31.0, 31.1])
    assert found is not None
    assert found.freedom == 4
    assert found.spread == pytest.approx(math.sqrt(0.1 / 4))
    error = found.spread * math.sqrt(2 / 3)
    assert (found.low, found.high) == pytest.approx((0.8 - 2.7764 * error, 0.8 + 2.7764 * error), abs=1e-4)
    assert found.p == pytest.approx(1 - probability_within(0.8 / error, 4))
    assert found.least_telling == pytest.approx(2.7764 * error, abs=1e-4)


def test_one_run_borrows_the_spread_of_the_others() -> None:
    found = compare_groups([30.0, 30.4], [31.0])
    assert found is not None
    assert found.freedom == 1
    assert found.spread == pytest.approx(math.sqrt(0.08))
    # 0.8 BLEU beside a spread of 0.28, and nothing can be said.
    assert found.p > 0.2


def test_single_runs_tell_nothing_of_seeds() -> None:
    assert compare_groups([30.0], [31.0]) is None
    assert spread_of([30.0]) == 0


@pytest.mark.parametrize(("second", "p"), [([30.0, 30.0], 1.0), ([31.0, 31.0], 0.0)])
def test_runs_without_any_spread(second: list[float], p: float) -> None:
    found = compare_groups([30.0, 30.0], second)
    assert found is not None
    assert found.p == p
