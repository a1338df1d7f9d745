"""Noise, slopes, turns and levels of curves whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.reporting.judge.trend import level_around, level_at_end, noise, recent_slope, turn, two_sided_t
from tandem.reporting.run_record import Curve

STEPS = np.arange(1, 201, dtype=np.float64) * 100


def noisy(values: np.ndarray, spread: float, seed: int = 1) -> Curve:
    return Curve(STEPS, values + spread * np.random.default_rng(seed).standard_normal(len(values)))


@pytest.mark.parametrize("spread", [0.01, 0.1, 1.0])
def test_noise_is_told_apart_from_the_trend(spread: float) -> None:
    curve = noisy(5 / np.sqrt(STEPS / 100), spread)
    assert noise(curve.values) == pytest.approx(spread, rel=0.3)


def test_noise_of_a_smooth_curve_is_nothing() -> None:
    assert noise(3 - 0.001 * STEPS) == pytest.approx(0, abs=1e-12)
    assert noise(np.array([3.0])) == 0.0


def test_of_three_points_all_movement_may_be_noise() -> None:
    assert noise(np.array([5.0, 3.0, 2.5])) > 1


def test_the_slope_is_that_of_the_last_doubling() -> None:
    found = recent_slope(noisy(9 - 0.3 * np.log2(STEPS), 0.02))
    assert found is not None
    assert found.per_doubling == pytest.approx(-0.3, abs=3 * found.error)
    assert found.points == 101
    assert found.significant


def test_noise_alone_has_no_slope_in_nineteen_cases_of_twenty() -> None:
    slopes = [recent_slope(noisy(np.full(200, 3.0), 0.1, seed)) for seed in range(200)]
    false_alarms = sum(slope is not None and slope.significant for slope in slopes)
    assert 2 <= false_alarms <= 25


def test_wandering_points_count_as_fewer() -> None:
    wandering = np.cumsum(np.random.default_rng(3).standard_normal(200)) * 0.01
    straight = noisy(np.full(200, 3.0), float(np.std(wandering)))
    errors = [recent_slope(curve) for curve in (Curve(STEPS, 3 + wandering), straight)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert errors[0].error > 2 * errors[1].error


def test_few_points_and_step_zero() -> None:
    assert recent_slope(Curve.of([(0, 9.0), (1, 2.0), (2, 1.0)])) is None
    found = recent_slope(Curve.of([(0, 99.0), (1, 3.0), (2, 2.0), (4, 1.0)]))
    assert found is not None
    assert found.per_doubling == pytest.approx(-1)


def test_a_turn_is_where_the_level_was_best() -> None:
    valley = 3 + 1e-8 * (STEPS - 12_000) ** 2
    found = turn(noisy(valley, 0.02), lower_is_better=True)
    assert found.best_at == pytest.approx(12_000, abs=1500)
    assert found.worsening == pytest.approx(0.6, abs=0.06)
    assert found.beyond(0.1)
    assert not found.beyond(0.7)
    hill = turn(noisy(30 - valley, 0.02), lower_is_better=False)
    assert hill.best == pytest.approx(27, abs=0.05)
    assert hill.worsening == pytest.approx(0.6, abs=0.06)


def test_a_curve_that_only_falls_has_not_turned() -> None:
    found = turn(noisy(5 - np.log10(STEPS), 0.02), lower_is_better=True)
    assert not found.beyond(0.0)


def test_levels_calm_the_noise() -> None:
    curve = noisy(np.where(STEPS > 10_000, 2.0, 4.0), 0.1)
    assert level_at_end(curve) == pytest.approx(2.0, abs=0.1)
    assert level_around(curve, 5000) == pytest.approx(4.0, abs=0.1)
    assert level_around(curve, 0) == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize(("degrees", "bound"), [(1, 12.706), (5, 2.571), (6, 2.447), (10, 2.228), (30, 2.042)])
def test_bounds_of_students_distribution(degrees: int, bound: float) -> None:
    assert two_sided_t(degrees) == pytest.approx(bound, abs=0.02)


def test_of_a_step_taken_twice_the_later_value_counts() -> None:
    curve = Curve.of([(100, 1.0), (200, 2.0), (100, 3.0)])
    assert curve.at.tolist() == [100, 200]
    assert curve.values.tolist() == [3.0, 2.0]
