"""Is it fully trained, was it overfitting, and what did the learning rate do?"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tandem.reporting.answers import Evidence, Judgement, Reply
from tandem.reporting.judge.findings import RunFindings
from tandem.reporting.questions.run_and_step_time import working_seconds
from tandem.reporting.run_record import FloatArray, RunRecord
from tandem.units import duration

TRAINED_WORDS = {
    "improving": "No, it is still improving",
    "converged": "Yes, it has converged",
    "diverged": "No, it has diverged",
    "degenerate": "No, what it has learnt is no translation",
    "too_short": "It cannot be told yet",
}
OVERFITTING_WORDS = {"yes": "Yes", "no": "No", "mixed": "Loss and BLEU disagree", "unknown": "It cannot be told"}
# The logged rate and the promised one agree up to the digits that logs print.
RATE_TOLERANCE = 0.01
# A whole step more or less is a matter of counting from 0 or from 1.
STEP_TOLERANCE = 1


def answer_trained(run: RunRecord, findings: RunFindings) -> Reply:
    learning = findings.learning
    verdict, confidence, because = learning.trained
    evidence: Evidence = {"evaluations": len(run.eval_loss), "last_step": run.last_step}
    for name, slope in (("eval_loss", learning.loss_slope), ("bleu", learning.bleu_slope)):
        if slope is not None:
            evidence[f"{name}_per_doubling"] = slope.per_doubling
            evidence[f"{name}_per_doubling_standard_error"] = slope.error
    for name, curve in (("eval_loss", run.eval_loss), ("bleu", run.bleu), ("train_loss", run.train_loss)):
        if len(curve):
            evidence[f"last_{name}"] = float(curve.values[-1])
    if len(run.bleu):
        evidence["last_bleu_is_of_first_sentences"] = run.bleu_first_sentences.get(float(run.bleu.at[-1]))
    evidence["bleu_signature"] = run.bleu_note or None
    said = f"{TRAINED_WORDS[verdict]}: {because}{_gain_words(run, evidence)}"
    forecast = _forecast_words(run, findings, evidence)
    if forecast and verdict == "improving":
        said += f"; {forecast}"
    if learning.remark:
        evidence["remark"] = learning.remark
        said += f". {learning.remark}"
    if run.roll_backs:
        times = len(run.roll_backs)
        evidence["roll_backs"] = times
        said += f". On the way it blew up {f'{times} times' if times > 1 else 'once'}: {'. '.join(run.roll_backs)}"
    return Reply(verdict, confidence, f"{said}.", evidence)


def _gain_words(run: RunRecord, evidence: Evidence) -> str:
    """What a run has made of the other model that it began with; empty for one that began with weights of its own."""
    if run.origin is None:
        return ""
    evidence["began_with"] = run.origin
    said = f"; it began with {run.origin}"
    bleu, loss = run.bleu.finite, run.eval_loss.finite
    if not len(bleu) or bleu.at[0] != run.first_step:
        return said
    evidence |= {"first_bleu": float(bleu.values[0]), "bleu_gain": float(bleu.values.max() - bleu.values[0])}
    said += f", which had BLEU {bleu.values[0]:.2f} here before the first step: {evidence['bleu_gain']:+.2f} at best"
    if len(loss) and loss.at[0] == run.first_step:
        evidence["first_eval_loss"] = float(loss.values[0])
        said += f", and an evaluation loss of {loss.values[0]:.3f}"
    return said


def _forecast_words(run: RunRecord, findings: RunFindings, evidence: Evidence) -> str:
    """What twice the steps would bring and cost, in BLEU if that is known; empty without a forecast."""
    learning, words = findings.learning, ""
    for name, what, forecast in (
        ("bleu", "BLEU", learning.bleu_forecast),
        ("eval_loss", "a loss of", learning.loss_forecast),
    ):
        if forecast is not None:
            evidence[f"{name}_at_twice_the_steps"] = forecast.middle
            evidence[f"{name}_at_twice_the_steps_interval"] = [forecast.low, forecast.high]
            interval = f"({forecast.low:.2f} to {forecast.high:.2f})"
            words = words or f"at twice the steps expect {what} {forecast.middle:.2f} {interval}"
    seconds = working_seconds(run)
    if not words or seconds is None:
        return words
    evidence["twice_the_steps_seconds"] = seconds
    evidence["twice_the_steps_cost_dollars"] = bill = findings.cost(seconds)
    return f"{words} for {duration(seconds)} more" + ("" if bill is None else f", ${bill:,.2f}")


def answer_overfitting(run: RunRecord, findings: RunFindings) -> Reply:
    learning, found = findings.learning, findings.learning.loss_turn
    verdict, confidence, because = learning.overfitting
    evidence: Evidence = {"evaluations": len(run.eval_loss)}
    if found is not None:
        evidence |= {
            "best_eval_loss": found.best,
            "best_at": found.best_at,
            "eval_loss_rise": found.worsening,
            "noise_of_the_rise": found.noise,
        }
    evidence["bleu_change_since_best_eval_loss"] = learning.bleu_since_turn
    losses = [curve.finite.values for curve in (run.eval_loss, run.train_loss)]
    if all(map(len, losses)):
        evidence["eval_loss_minus_train_loss"] = float(losses[0][-1] - losses[1][-1])
    return Reply(verdict, confidence, f"{OVERFITTING_WORDS[verdict]}: {because}.", evidence)


def answer_learning_rate(run: RunRecord, findings: RunFindings) -> Reply:
    logged = run.learning_rate.finite
    evidence: Evidence = {}
    if len(logged):
        peak = int(logged.values.argmax())
        evidence = {
            "logged_points": len(logged),
            "highest_logged": float(logged.values[peak]),
            "highest_at": float(logged.at[peak]),
            "last_logged": float(logged.values[-1]),
        }
    judged = _compare_rates(run, evidence)
    evidence["schedule"] = None if run.schedule is None else run.schedule.explanation
    return Reply(*judged, evidence)


def _compare_rates(run: RunRecord, evidence: Evidence) -> Judgement:
    """What the settings promise, checked against what was logged."""
    logged, schedule = run.learning_rate.finite, run.schedule
    if schedule is None:
        if not len(logged):
            return Judgement("unknown", "none", "Neither settings nor log tell the learning rate.")
        said = f"It {_shape(logged.values)}; the data does not say by which rule."
        return Judgement("logged_only", "medium", said)
    promise = f"By its settings it {schedule.explanation}"
    if not len(logged):
        return Judgement("explained", "medium", f"{promise}; it was not logged, so that this is unchecked.")
    if schedule.rate is None:
        return Judgement("explained", "medium", f"{promise}; the log shows that it {_shape(logged.values)}.")
    # Rates from before settings were last changed followed other settings.
    changes = [step for step, note in run.events if note.startswith("changed setting")]
    start = int(np.searchsorted(logged.at, max(changes), side="right")) if changes else 0
    steps, rates = (values[min(start, len(logged) - 1) :].tolist() for values in (logged.at, logged.values))
    off = [_deviation(schedule.rate, step, rate) for step, rate in zip(steps, rates, strict=True)]
    evidence["largest_deviation_share"] = worst = max(off)
    if worst <= RATE_TOLERANCE:
        return Judgement("as_configured", "high", f"{promise}; all {len(off):,} logged values agree with it.")
    wrong = sum(value > RATE_TOLERANCE for value in off)
    differ = f"{wrong:,} of {len(off):,} logged values differ, the worst by {worst:.0%}"
    step = steps[int(np.argmax(off))]
    return Judgement("not_as_configured", "high", f"{promise}; but {differ} at step {step:,.0f}.")


def _deviation(rate: Callable[[float], float], step: float, logged: float) -> float:
    """Relative distance to the nearest promised rate around a step."""
    nearest = math.inf
    for shift in (0, -STEP_TOLERANCE, STEP_TOLERANCE):
        value = rate(max(step + shift, 1.0))
        nearest = min(nearest, abs(logged - value) / max(abs(value), math.ulp(1.0)))
        if nearest <= RATE_TOLERANCE:
            break
    return nearest


def _shape(values: FloatArray) -> str:
    """A curve of learning rates in words."""
    first, last, highest = float(values[0]), float(values[-1]), float(values.max())
    if np.ptp(values) <= RATE_TOLERANCE * highest:
        return f"stayed at {highest:.2e}"
    if highest > max(first, last) * (1 + RATE_TOLERANCE):
        return f"rose from {first:.2e} to {highest:.2e} and fell to {last:.2e}"
    return f"{'rose' if last > first else 'fell'} from {first:.2e} to {last:.2e}"
