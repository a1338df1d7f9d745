"""A thinned curve has few points, and all that matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandem.reporting.render.thin_curve import FEWEST, thin, thin_together
from tandem.reporting.run_record import NOTHING, Curve

VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=300)
MOST = st.integers(FEWEST, 60)


def curve_of(values: list[float] | NDArray[np.float64]) -> Curve:
    return Curve(np.arange(len(values), dtype=np.float64), np.asarray(values, dtype=np.float64))


@given(VALUES, MOST)
def test_keeps_extremes_ends_and_gaps(values: list[float], most: int) -> None:
    curve = curve_of(values)
    thinned = thin(curve, most)
    assert len(thinned) <= most
    assert (np.diff(thinned.at) > 0).all()
    np.testing.assert_array_equal(thinned.values, curve.values[thinned.at.astype(int)])
    if not values:
        return
    assert thinned.at[0] == 0
    assert thinned.at[-1] == len(values) - 1
    if len(curve.finite):
        assert thinned.finite.values.min() == curve.finite.values.min()
        assert thinned.finite.values.max() == curve.finite.values.max()
    assert np.isfinite(thinned.values).all() == np.isfinite(curve.values).all()


@given(st.lists(VALUES.filter(bool), min_size=1, max_size=4), MOST)
def test_layers_are_thinned_at_the_same_steps_and_keep_their_extremes(layers: list[list[float]], most: int) -> None:
    curves = [curve_of(values) for values in layers]
    thinned = thin_together(curves, most)
    for before, after in zip(curves, thinned, strict=True):
        np.testing.assert_array_equal(after.at, thinned[0].at)
        assert len(after) <= max(most, FEWEST * (len(curves) + 1))
        if len(before.finite):
            assert after.finite.values.min() == before.finite.values.min()
            assert after.finite.values.max() == before.finite.values.max()


def test_the_extremes_of_a_stack_s_sum_are_kept() -> None:
    noise = np.random.default_rng(1)
    lower, upper = noise.normal(size=(2, 10_000))
    thinned = thin_together([curve_of(lower), curve_of(upper)], 300)
    assert (thinned[0].values + thinned[1].values).max() == (lower + upper).max()


def test_a_peak_of_one_point_in_a_million_stays() -> None:
    values = np.zeros(1_000_000)
    values[654_321] = 1.0
    thinned = thin(curve_of(values), 500)
    assert thinned.at[thinned.values == 1.0].tolist() == [654_321]


def test_a_long_gap_stays_where_it_was() -> None:
    values = np.ones(10_000)
    values[4_000:6_000] = np.nan
    thinned = thin(curve_of(values), 100)
    gap = thinned.at[np.isnan(thinned.values)]
    assert gap[0] == 4_000
    assert gap[-1] == pytest.approx(6_000, abs=400)
    assert np.isfinite(thinned.values[(thinned.at < 4_000) | (thinned.at >= 6_000)]).all()


def test_short_and_empty_curves_are_left_alone() -> None:
    short = curve_of([3.0, 1.0, 2.0])
    assert thin(short, FEWEST).values.tolist() == [3.0, 1.0, 2.0]
    assert len(thin(NOTHING, FEWEST)) == 0
    assert thin_together([], FEWEST) == []
