"""Is it fully trained, was it overfitting, and what did the learning rate do?"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tandem.report.answers import Answer, Confidence, Evidence
from tandem.report.figures import duration
from tandem.report.findings import Findings, cost
from tandem.report.questions.duration import estimated_seconds, working_seconds
from tandem.report.record import FloatArray, RunRecord
from tandem.report.verdicts import Forecast, Trained

TRAINED_WORDS: dict[Trained, str] = {
    "improving": "No, it is still improving",
    "converged": "Yes, it has converged",
    "diverged": "No, it has diverged",
    "degenerate": "No, what it has learnt is no translation",
    "too_short": "It cannot be told yet",
}
# The logged rate and the promised one agree up to the digits that logs print.
RATE_TOLERANCE = 0.01
# A whole step more or less is a matter of counting from 0 or from 1.
STEP_TOLERANCE = 1


def answer_trained(run: RunRecord, findings: Findings) -> Answer:
    learning = findings.learning
    evidence: Evidence = {"evaluations": len(run.eval_loss), "last_step": run.last_step}
    for name, slope in (("eval_loss", learning.loss_slope), ("bleu", learning.bleu_slope)):
        if slope is not None:
            evidence[f"{name}_per_doubling"] = slope.per_doubling
            evidence[f"{name}_per_doubling_standard_error"] = slope.error
    for name, curve in (("eval_loss", run.eval_loss), ("bleu", run.bleu), ("train_loss", run.train_loss)):
        if len(curve):
            evidence[f"last_{name}"] = float(curve.values[-1])
    if run.bleu_note:
        evidence["bleu_signature"] = run.bleu_note
    said = f"{TRAINED_WORDS[learning.trained]}: {learning.trained_because}"
    forecast = learning.bleu_forecast or learning.loss_forecast
    if forecast is not None and learning.trained == "improving":
        said += f"; {_forecast_words(run, findings, forecast, evidence)}"
    elif forecast is not None:
        _forecast_words(run, findings, forecast, evidence)
    return Answer(
        id="trained",
        question="Is it fully trained, and how can you tell?",
        verdict=learning.trained,
        confidence=learning.trained_confidence,
        answer=f"{said}.",
        evidence=evidence,
        explanation=(
            "A run that ended is not a model that is trained. It is trained when twice the steps would bring nothing "
            "worth their price, which the slope of the evaluations, with its uncertainty, tells."
        ),
    )


def _forecast_words(run: RunRecord, findings: Findings, forecast: Forecast, evidence: Evidence) -> str:
    """What twice the steps would bring and cost."""
    name = "bleu" if findings.learning.bleu_forecast is not None else "eval_loss"
    for kind, value in (("bleu", findings.learning.bleu_forecast), ("eval_loss", findings.learning.loss_forecast)):
        if value is not None:
            evidence[f"{kind}_at_twice_the_steps"] = value.middle
            evidence[f"{kind}_at_twice_the_steps_interval"] = [value.low, value.high]
    words = (
        f"at twice the steps expect {'BLEU' if name == 'bleu' else 'a loss of'} {forecast.middle:.2f} "
        f"({forecast.low:.2f} to {forecast.high:.2f})"
    )
    seconds = working_seconds(run) or estimated_seconds(run)
    if seconds is None:
        return words
    evidence["twice_the_steps_seconds"] = seconds
    words += f" for {duration(seconds)} more"
    bill = cost(findings, seconds)
    if bill is None:
        return words
    evidence["twice_the_steps_cost_dollars"] = bill
    return f"{words}, ${bill:,.2f}"


def answer_overfitting(run: RunRecord, findings: Findings) -> Answer:
    learning, found = findings.learning, findings.learning.loss_turn
    evidence: Evidence = {"evaluations": len(run.eval_loss)}
    if found is not None:
        evidence["best_eval_loss"] = found.best
        evidence["best_at"] = found.best_at
        evidence["eval_loss_rise"] = found.worsening
        evidence["noise_of_the_rise"] = found.noise
    if learning.bleu_since_turn is not None:
        evidence["bleu_change_since_best_eval_loss"] = learning.bleu_since_turn
    if len(run.train_loss.finite) and len(run.eval_loss.finite):
        evidence["eval_loss_minus_train_loss"] = float(
            run.eval_loss.finite.values[-1] - run.train_loss.finite.values[-1]
        )
    words = {"yes": "Yes", "no": "No", "mixed": "Loss and BLEU disagree", "unknown": "It cannot be told"}
    return Answer(
        id="overfitting",
        question="Was it overfitting?",
        verdict=learning.overfitting,
        confidence=learning.overfitting_confidence,
        answer=f"{words[learning.overfitting]}: {learning.overfitting_because}.",
        evidence=evidence,
        explanation=(
            "Overfitting shows when the evaluation loss turns and rises beyond its noise while training goes on. A "
            "training loss below the evaluation loss proves nothing; and BLEU may rise for a while after the loss has "
            "turned, because it asks only for the best word, not for its probability."
        ),
    )


def answer_learning_rate(run: RunRecord, findings: Findings) -> Answer:
    logged, schedule = run.learning_rate.finite, run.schedule
    evidence: Evidence = {}
    if len(logged):
        peak = int(logged.values.argmax())
        evidence = {
            "logged_points": len(logged),
            "highest_logged": float(logged.values[peak]),
            "highest_at": float(logged.at[peak]),
            "last_logged": float(logged.values[-1]),
        }
    verdict, confidence, said = _compare_rates(run, evidence)
    if schedule is not None:
        evidence["schedule"] = schedule.explanation
    return Answer(
        id="learning_rate",
        question="What did the learning rate do, and why?",
        verdict=verdict,
        confidence=confidence,
        answer=said,
        evidence=evidence,
        explanation=(
            "The learning rate follows a formula of the step alone. It does not fall because the loss has stopped "
            "falling, unless a schedule watches the loss; it rises at first because Adam's means are still rough."
        ),
    )


def _compare_rates(run: RunRecord, evidence: Evidence) -> tuple[str, Confidence, str]:
    """What the settings promise, checked against what was logged."""
    logged, schedule = run.learning_rate.finite, run.schedule
    if schedule is None:
        if not len(logged):
            return "unknown", "none", "Neither settings nor log tell the learning rate."
        shape = _shape(logged.values)
        return "logged_only", "medium", f"It {shape}; the data does not say by which rule."
    promise = f"By its settings it {schedule.explanation}"
    if not len(logged):
        return "explained", "medium", f"{promise}; it was not logged, so that this is unchecked."
    if schedule.rate is None:
        return "explained", "medium", f"{promise}; the log shows that it {_shape(logged.values)}."
    known = _since_last_change(run)
    off = [
        _deviation(schedule.rate, float(step), float(rate))
        for step, rate in zip(logged.at[known], logged.values[known], strict=True)
    ]
    evidence["largest_deviation_share"] = worst = max(off)
    if worst <= RATE_TOLERANCE:
        return "as_configured", "high", f"{promise}; all {len(off):,} logged values agree with it."
    step = float(logged.at[known][int(np.argmax(off))])
    wrong = sum(value > RATE_TOLERANCE for value in off)
    return (
        "not_as_configured",
        "high",
        f"{promise}; but {wrong:,} of {len(off):,} logged values differ, the worst by {worst:.0%} at step {step:,.0f}.",
    )


def _deviation(rate: Callable[[float], float], step: float, logged: float) -> float:
    """Relative distance to the nearest promised rate around a step."""
    nearest = math.inf
    for shift in (0, -STEP_TOLERANCE, STEP_TOLERANCE):
        value = rate(max(step + shift, 1.0))
        nearest = min(nearest, abs(logged - value) / max(abs(value), math.ulp(1.0)))
        if nearest <= RATE_TOLERANCE:
            break
    return nearest


def _since_last_change(run: RunRecord) -> slice:
    """The logged rates since settings were last changed; the ones before followed other settings."""
    changes = [step for step, note in run.events if note.startswith("changed setting")]
    start = int(np.searchsorted(run.learning_rate.finite.at, max(changes), side="right")) if changes else 0
    return slice(min(start, len(run.learning_rate.finite) - 1), None)


def _shape(values: FloatArray) -> str:
    """A curve of learning rates in words."""
    first, last, highest = float(values[0]), float(values[-1]), float(values.max())
    if np.ptp(values) <= RATE_TOLERANCE * highest:
        return f"stayed at {highest:.2e}"
    if highest > max(first, last) * (1 + RATE_TOLERANCE):
        return f"rose from {first:.2e} to {highest:.2e} and fell to {last:.2e}"
    return f"{'rose' if last > first else 'fell'} from {first:.2e} to {last:.2e}"
