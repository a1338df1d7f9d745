"""A run explained: findings, eleven answers, a summary of four lines, and charts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import tandem
from tandem.report.answers import Answer, Report
from tandem.report.charts import make_charts
from tandem.report.figures import duration, percent
from tandem.report.findings import Findings, find
from tandem.report.questions.duration import answer_duration
from tandem.report.questions.files import answer_checkpoint_files, answer_checkpoint_size, answer_training_set
from tandem.report.questions.learning import TRAINED_WORDS, answer_learning_rate, answer_overfitting, answer_trained
from tandem.report.questions.machines import answer_network, answer_network_correlation, answer_utilisation
from tandem.report.questions.steps import answer_step_time
from tandem.report.record import RunRecord

# In the order in which they are asked.
QUESTIONS = (
    answer_duration,
    answer_trained,
    answer_overfitting,
    answer_utilisation,
    answer_network,
    answer_learning_rate,
    answer_training_set,
    answer_checkpoint_files,
    answer_checkpoint_size,
    answer_step_time,
    answer_network_correlation,
)


def examine(run: RunRecord, price_per_hour: float | None = None) -> Report:
    """Answer the eleven questions for a run; the price is that of one machine."""
    findings = find(run, price_per_hour)
    answers = tuple(question(run, findings) for question in QUESTIONS)
    return Report(
        path=run.path,
        source=run.source,
        state=run.state,
        axis=run.axis,
        version=tandem.__version__,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        summary=_summary(run, findings, {answer.id: answer for answer in answers}),
        questions=answers,
        problems=run.problems,
        charts=make_charts(run),
    )


def _summary(run: RunRecord, findings: Findings, answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """Four lines: what happened, what came out, what held it up, what to do next."""
    return answers["duration"].answer, _outcome(run, findings), _hold_up(findings, answers), _advice(run, findings)


def _outcome(run: RunRecord, findings: Findings) -> str:
    best = []
    if len(run.bleu.finite):
        index = int(run.bleu.finite.values.argmax())
        # A number without its signature compares with nothing.
        plain = "" if (run.bleu_note or "").startswith("nrefs") else " (no sacreBLEU signature)"
        value, step = run.bleu.finite.values[index], run.bleu.finite.at[index]
        best.append(f"best BLEU {value:.2f}{plain} at {run.axis} {step:,.0f}")
    if len(run.eval_loss.finite):
        index = int(run.eval_loss.finite.values.argmin())
        loss, step = run.eval_loss.finite.values[index], run.eval_loss.finite.at[index]
        best.append(f"lowest evaluation loss {loss:.3f} at {run.axis} {step:,.0f}")
    fitted = {"yes": "; it overfitted", "mixed": "; on overfitting, loss and BLEU disagree"}
    # Of a model that fell apart nobody asks whether it fitted too well.
    fit = "" if findings.learning.trained == "diverged" else fitted.get(findings.learning.overfitting, "")
    outcome = TRAINED_WORDS[findings.learning.trained] + fit
    return f"Fully trained? {'; '.join([outcome, *best])}."


def _hold_up(findings: Findings, answers: Mapping[str, Answer]) -> str:
    network, compute = findings.network, answers["utilisation"].evidence.get("compute_share")
    said = []
    if network.verdict != "unknown":
        sure = "" if network.confidence == "high" else "Probably "
        held_up = "the network was the bottleneck" if network.verdict == "bottleneck" else "not the network"
        said.append(f"{sure}{held_up}".capitalize())
    if compute is not None:
        said.append(f"{percent(compute)} of the training time was compute")
    if findings.steps is not None:
        said.append(f"a step took {duration(findings.steps.median)}")
    # Of the step time alone nobody learns what held it up.
    if network.verdict == "unknown" and compute is None:
        said.insert(0, "The data has no clock and no samples to tell")
    return f"What held it up? {'; '.join(said)}."


def _advice(run: RunRecord, findings: Findings) -> str:
    """The one thing to do next."""
    learning, network = findings.learning, findings.network
    advice = "Nothing needs mending; keep the best checkpoint."
    if run.state == "crashed" and learning.trained != "diverged":
        advice = "Start it again after mending what stopped it; a Tandem run goes on where it was last saved."
        if run.source != "Tandem run":
            advice = "Mend what stopped it, then start it again."
    elif learning.trained == "diverged":
        advice = "Go back to a checkpoint from before it diverged, with a lower learning rate or a longer warm-up."
    elif learning.trained == "degenerate":
        advice = "Look at the training and evaluation data before anything else."
    elif network.verdict == "bottleneck":
        how = " (exchange.kind=auto)" if run.source == "Tandem run" else ""
        advice = f"A faster link, or an exchange that sends less{how}, would pay before anything else."
    elif learning.overfitting == "yes":
        advice = "Use the checkpoint from where the evaluation loss was lowest; more dropout or more data would help."
    elif learning.trained == "too_short":
        advice = "Let it run longer, and evaluate more often, before judging it."
    elif learning.trained == "improving":
        advice = "Let it run on: it is worth it." if run.state != "running" else "Leave it running: it still improves."
    return f"What next? {advice}"
