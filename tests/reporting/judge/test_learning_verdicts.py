"""Runs of every kind get the verdict that a careful reader would give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tandem.reporting.judge.learning_verdicts import Learning
from tandem.reporting.run_record import NOTHING, Curve, RunRecord

STEPS = np.arange(1, 41, dtype=np.float64) * 500


def curve(values: Any, spread: float = 0.0, seed: int = 0) -> Curve:
    values = np.asarray(values, dtype=np.float64)
    jitter = spread * np.random.default_rng(seed).standard_normal(len(values))
    return Curve(STEPS[: len(values)], values + jitter)


def run(eval_loss: Curve = NOTHING, bleu: Curve = NOTHING, train_loss: Curve = NOTHING, **values: Any) -> RunRecord:
    return RunRecord(
        source="made", path="x", state="unknown", eval_loss=eval_loss, bleu=bleu, train_loss=train_loss, **values
    )


FALLING = 2 + 4 / np.sqrt(STEPS / 500)
LEVEL = 2 + 4 * np.exp(-STEPS / 1000)
VALLEY = np.where(STEPS < 8000, 2 + 4 * np.exp(-STEPS / 1500), 2.02 + (STEPS - 8000) / 24_000)
RISING_BLEU = 10 * np.log10(STEPS / 100)
LEVEL_BLEU = 25 * (1 - np.exp(-STEPS / 1000))

CASES = {
    "improving": (run(curve(FALLING, 0.01)), "improving", "no"),
    "improving by BLEU alone": (run(bleu=curve(RISING_BLEU, 0.2)), "improving", "unknown"),
    "converged": (run(curve(LEVEL, 0.01), curve(LEVEL_BLEU, 0.2)), "converged", "no"),
    "overfitting, by loss alone": (run(curve(VALLEY, 0.01)), "converged", "yes"),
    "overfitting, and BLEU falls": (
        run(curve(VALLEY, 0.01), curve(np.where(STEPS < 8000, LEVEL_BLEU, LEVEL_BLEU - (STEPS - 8000) / 4000), 0.1)),
        "converged",
        "yes",
    ),
    "the loss rises and BLEU, too": (run(curve(VALLEY, 0.01), curve(RISING_BLEU, 0.1)), "improving", "mixed"),
    "the loss rises far while training goes well": (
        run(curve(np.where(STEPS < 8000, LEVEL, 2 + (STEPS - 8000) / 4000), 0.02), train_loss=curve(LEVEL - 1)),
        "converged",
        "yes",
    ),
    "not a number at the end": (run(curve([*FALLING[:30], math.nan])), "diverged", "no"),
    "infinite training loss": (run(curve(FALLING), train_loss=curve([5.0, 4.0, math.inf])), "diverged", "no"),
    "both losses rise": (
        run(curve(np.where(STEPS < 8000, LEVEL, 5.5), 0.05), train_loss=curve(np.where(STEPS < 8000, LEVEL, 6.0), 0.1)),
        "diverged",
        "yes",
    ),
    "BLEU collapses": (
        run(curve(np.where(STEPS < 8000, LEVEL, 3.0), 0.02), curve(np.where(STEPS < 8000, LEVEL_BLEU, 0.1))),
        "diverged",
        "yes",
    ),
    "the program gave up": (run(curve(FALLING), not_finite=True, failure="step 9: not finite"), "diverged", "no"),
    "a spike that it recovered from": (
        run(curve(np.where(STEPS == 5000, 9.0, FALLING), 0.01)),
        "improving",
        "no",
    ),
    "predicts everything from the start": (run(curve(np.full(20, 0.025), 0.0003)), "degenerate", "unknown"),
    "never moved": (run(curve(np.full(20, 8.5), 0.01)), "degenerate", "unknown"),
    "translates nothing": (run(curve(np.full(20, 6.0), 0.01), curve(np.full(20, 0.1), 0.01)), "degenerate", "unknown"),
    "an easy corpus, learnt well": (
        run(curve(0.03 + 3 * np.exp(-STEPS / 500), 0.001), curve(96 * (1 - np.exp(-STEPS / 500)), 0.1)),
        "converged",
        "no",
    ),
    "has hardly begun": (run(curve(9.15 - 0.004 * np.arange(8))), "improving", "no"),
    "one evaluation": (run(curve([5.0])), "too_short", "unknown"),
    "five evaluations and nothing else": (run(curve(FALLING[:5])), "too_short", "no"),
    "four evaluations beside a long training loss": (
        run(curve(FALLING[:4]), curve(RISING_BLEU[:4]), curve(FALLING)),
        "improving",
        "no",
    ),
    "three evaluations, each better, and a training loss that falls": (
        run(curve([0.83, 0.287, 0.24]), curve([53.4, 90.8, 93.3]), curve(FALLING)),
        "improving",
        "no",
    ),
    "three evaluations, and a training loss that does not fall": (
        run(curve([0.83, 0.287, 0.24]), curve([53.4, 90.8, 93.3]), curve(np.full(40, 2.0), 0.01)),
        "too_short",
        "no",
    ),
    "flat by now, though not over the whole last doubling": (
        run(curve(2 + 4 * np.exp(-6 * STEPS / STEPS[-1]), 0.002)),
        "converged",
        "no",
    ),
    "one bad evaluation before the last": (
        run(curve(np.where(STEPS[-2] == STEPS, 5.0, FALLING), 0.01)),
        "improving",
        "no",
    ),
    "one bad evaluation at the very end": (
        run(curve(np.where(STEPS[-1] == STEPS, 2.5, LEVEL), 0.01)),
        "converged",
        "no",
    ),
    "the training loss blows up after the last evaluation": (
        run(curve(FALLING[:20], 0.01), train_loss=curve(np.where(STEPS < 16_000, FALLING, 9.5), 0.05)),
        "diverged",
        "no",
    ),
    "an evaluation loss alone that explodes": (
        run(curve(np.where(STEPS < 15_000, FALLING, 7.5), 0.02)),
        "diverged",
        "yes",
    ),
    "an overfitting whose first evaluation is almost the best": (
        run(curve(2.5 + 0.04 * np.arange(40), 0.01)),
        "converged",
        "yes",
    ),
    "a trained model that loses a little": (
        run(
            curve(1.5 + 0.0015 * np.arange(40), 0.002),
            curve(30 - 0.025 * np.arange(40), 0.05),
            train_loss=curve(1.2 + 0.0025 * np.arange(40), 0.002),
        ),
        "converged",
        "yes",
    ),
    "a perplexity that falls to one": (run(curve(0.02 + np.exp(-STEPS / 1000), 0.001)), "degenerate", "unknown"),
    "a hopeless level, seen from the middle of the run": (
        run(Curve(STEPS + 50_000, curve(np.full(40, 6.0), 0.01).values)),
        "degenerate",
        "unknown",
    ),
    "BLEU alone that collapses": (run(bleu=curve(np.where(STEPS < 10_000, LEVEL_BLEU, 0.0))), "diverged", "unknown"),
    "losses per sentence": (
        run(curve(25 * LEVEL, 0.25), tokens_per_loss_value=25.0),
        "converged",
        "no",
    ),
    "nothing": (run(), "too_short", "unknown"),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str) -> None:
    record, trained, overfitting = CASES[name]
    found = Learning(record)
    assert (found.trained.verdict, found.overfitting.verdict) == (trained, overfitting), found


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["improving", "converged", "overfitting"])
def test_no_verdict_hangs_on_the_noise(name: str, seed: int) -> None:
    shape = {"improving": FALLING, "converged": LEVEL, "overfitting": VALLEY}[name]
    found = Learning(run(curve(shape, 0.015, seed)))
    assert found.trained.verdict == ("improving" if name == "improving" else "converged")
    assert found.overfitting.verdict == ("yes" if name == "overfitting" else "no")


def test_a_forecast_holds_where_the_curve_went_on() -> None:
    """Cut off half-way, and compared with the rest."""
    whole = 2 + 4 / np.sqrt(np.arange(1, 81) * 1.0)
    found = Learning(run(Curve(np.arange(1.0, 41.0), whole[:40])))
    assert found.loss_forecast is not None
    assert found.loss_forecast.low <= whole[79] <= found.loss_forecast.high
    assert found.loss_forecast.middle < whole[39]


def test_a_run_that_took_over_the_step_of_another_is_judged_by_its_own_steps() -> None:
    loss, bleu = curve(LEVEL, 0.01), curve(LEVEL_BLEU, 0.3)
    later = [Curve(each.at + 100_000, each.values) for each in (loss, bleu)]
    assert Learning(run(*later, first_step=100_000.0)).trained == Learning(run(loss, bleu)).trained


def test_a_curve_past_its_best_is_not_expected_to_gain() -> None:
    found = Learning(run(curve(VALLEY, 0.01)))
    assert found.loss_forecast is not None
    assert found.loss_forecast.middle == pytest.approx(VALLEY[-1], abs=0.05)


# What every model learns within the first steps.
BEGINNING = 4 * np.exp(-STEPS / 800)


def falling(per_doubling: float, seed: int, rate: Curve = NOTHING) -> RunRecord:
    """An evaluation loss that falls by so much for each doubling of the steps, with little noise."""
    values = 3.0 - per_doubling * np.log2(STEPS / 500) + BEGINNING
    return run(curve(values, 0.003, seed), learning_rate=rate)


@pytest.mark.parametrize("seed", range(8))
def test_near_the_bound_no_verdict_is_sure(seed: int) -> None:
    less, more = (Learning(falling(per_doubling, seed)).trained for per_doubling in (0.043, 0.052))
    assert less.confidence in ("low", "medium"), less
    assert more.confidence == "low", more
    assert "about as much as is worth them (0.03)" in more.because


@pytest.mark.parametrize("seed", range(8))
def test_far_from_the_bound_verdicts_are_sure(seed: int) -> None:
    flat, steep = (Learning(falling(per_doubling, seed)).trained for per_doubling in (0.004, 0.3))
    assert (flat.verdict, flat.confidence) == ("converged", "high")
    assert (steep.verdict, steep.confidence) == ("improving", "high")


@pytest.mark.parametrize("seed", range(4))
def test_a_steeper_curve_is_never_the_more_converged_one(seed: int) -> None:
    verdicts = [Learning(falling(0.005 * number, seed)).trained.verdict for number in range(1, 30)]
    assert verdicts == sorted(verdicts), verdicts


CONSTANT = Curve(STEPS, np.full(40, 1e-3))
CUT = Curve(STEPS, np.where(STEPS > 18_500, 5e-4, 1e-3))
"""The learning rate is halved before the last three evaluations."""
STEP_DOWN = np.where(STEPS > 18_500, 1.9, 2.0) + BEGINNING


def test_a_cut_of_the_learning_rate_that_brought_a_gain_is_not_convergence() -> None:
    found = Learning(run(curve(STEP_DOWN, 0.004), learning_rate=CUT)).trained
    assert (found.verdict, found.confidence) == ("improving", "medium"), found
    assert "the learning rate was cut by 50% after step 18,500" in found.because
    by_bleu = Learning(run(bleu=curve(np.where(STEPS > 18_500, 27.0, 25.0), 0.1), learning_rate=CUT)).trained
    assert by_bleu.verdict == "improving"
    assert "changed the BLEU by +2" in by_bleu.because


@pytest.mark.parametrize(
    ("values", "rate"),
    [
        # A cut that brought nothing, one that was long ago, and a rate that falls all the time.
        (2.0 + BEGINNING, CUT),
        (np.where(STEPS > 12_000, 1.9, 2.0) + BEGINNING, Curve(STEPS, np.where(STEPS > 12_000, 5e-4, 1e-3))),
        (2.0 + BEGINNING, Curve(STEPS, 1e-3 * 0.9 ** np.arange(40.0))),
    ],
)
def test_other_cuts_change_no_verdict(values: np.ndarray, rate: Curve) -> None:
    found = Learning(run(curve(values, 0.004), learning_rate=rate))
    assert found.trained == Learning(run(curve(values, 0.004), learning_rate=CONSTANT)).trained
    assert "was cut" not in found.trained.because


@pytest.mark.parametrize(
    ("bleu", "loss", "remarked"), [(90.0, 0.34, True), (40.0, 0.34, False), (90.0, 1.4, False), (70.0, 0.6, True)]
)
def test_scores_that_no_translator_reaches_get_a_remark(bleu: float, loss: float, remarked: bool) -> None:
    found = Learning(
        run(curve(loss + 4 * np.exp(-STEPS / 1000), 0.004), curve(bleu * (1 - np.exp(-STEPS / 1000)), 0.2))
    )
    assert ("of the evaluation text may stand in the training text" in found.remark) is remarked
