"""Makes the report on a run: eleven answers, a summary of four lines, and charts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import tandem
from tandem.reporting.answers import NO_TRAINING_HERE, Answer, Reply, Report
from tandem.reporting.chart_selection import make_charts
from tandem.reporting.evaluation_table import evaluations_of
from tandem.reporting.formats.find_run import read_run
from tandem.reporting.judge.findings import RunFindings, judge_run
from tandem.reporting.questions import data_and_checkpoints, devices_and_network, learning, run_and_step_time
from tandem.reporting.questions.question_texts import QuestionText, question_texts
from tandem.reporting.run_record import RunRecord
from tandem.units import duration, first_sentences_note, percent

ANSWERS = {
    "duration": run_and_step_time.answer_duration,
    "trained": learning.answer_trained,
    "overfitting": learning.answer_overfitting,
    "utilisation": devices_and_network.answer_utilisation,
    "network": devices_and_network.answer_network,
    "learning_rate": learning.answer_learning_rate,
    "training_set": data_and_checkpoints.answer_training_set,
    "checkpoint_files": data_and_checkpoints.answer_checkpoint_files,
    "checkpoint_size": data_and_checkpoints.answer_checkpoint_size,
    "step_time": run_and_step_time.answer_step_time,
    "network_correlation": devices_and_network.answer_network_correlation,
}


def report(path: str | Path, price_per_hour: float | None = None) -> Report:
    """Read a run, Tandem's or another program's, and answer the eleven questions; the price is that of one machine."""
    return examine(read_run(Path(path)), price_per_hour)


def examine(run: RunRecord, price_per_hour: float | None = None) -> Report:
    """Answer the eleven questions for a run; the price is that of one machine."""
    findings = judge_run(run, price_per_hour)
    answers = {id: _answer(id, text, ANSWERS[id](run, findings)) for id, text in question_texts().items()}
    return Report(
        path=run.path,
        source=run.source,
        state=run.state,
        axis=run.axis,
        version=tandem.__version__,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        summary=_summary(run, findings, answers),
        questions=tuple(answers.values()),
        problems=run.problems,
        charts=make_charts(run),
        evaluations=evaluations_of(run),
        bleu_note=run.bleu_note or "",
    )


def _answer(id: str, text: QuestionText, reply: Reply) -> Answer:
    evidence = {name: value for name, value in reply.evidence.items() if value is not None}
    known = reply._replace(evidence=evidence)
    return Answer(id=id, question=text.question, explanation=text.explanation, **known._asdict())


def _summary(run: RunRecord, findings: RunFindings, answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """Four lines: what happened, what came out, what held it up, what to do next."""
    outcome, held_up = _outcome(run, findings), _hold_up(run, findings, answers)
    return answers["duration"].answer, outcome, held_up, _advice(run, findings, answers)


def _outcome(run: RunRecord, findings: RunFindings) -> str:
    trained, overfitting = findings.learning.trained.verdict, findings.learning.overfitting.verdict
    bleu, loss = run.bleu.finite, run.eval_loss.finite
    said = learning.TRAINED_WORDS[trained]
    # Overfitting does not matter any more in a model that has diverged.
    if trained != "diverged":
        said += {"yes": "; it overfitted", "mixed": "; on overfitting, loss and BLEU disagree"}.get(overfitting, "")
    if len(bleu):
        best = int(bleu.values.argmax())
        # BLEU without its signature cannot be compared.
        plain = "" if (run.bleu_note or "").startswith("nrefs") else " (no sacreBLEU signature)"
        note = first_sentences_note(run.bleu_first_sentences.get(float(bleu.at[best])))
        said += f"; best BLEU {bleu.values[best]:.2f}{plain}{note} at {run.axis} {bleu.at[best]:,.0f}"
    if len(loss):
        best = int(loss.values.argmin())
        said += f"; lowest evaluation loss {loss.values[best]:.3f} at {run.axis} {loss.at[best]:,.0f}"
    return f"Fully trained? {said}."


def _hold_up(run: RunRecord, findings: RunFindings, answers: Mapping[str, Answer]) -> str:
    if run.holds_no_step:
        return f"What held it up? It cannot be told: {NO_TRAINING_HERE}."
    (verdict, confidence, _), compute = findings.network.judged, answers["utilisation"].evidence.get("compute_share")
    said = []
    if verdict != "unknown":
        sure = "" if confidence == "high" else "Probably "
        held_up = "the network was the bottleneck" if verdict == "bottleneck" else "not the network"
        said.append(f"{sure}{held_up}".capitalize())
    processors = findings.processors
    if answers["utilisation"].verdict == "shared" and processors is not None:
        said.append(processors.words)
    elif compute is not None:
        said.append(f"{percent(compute)} of the training time was compute")
    if findings.steps is not None:
        said.append(f"a step took {duration(findings.steps.median_seconds)}")
    # The step time alone does not tell what held it up.
    if verdict == "unknown" and compute is None:
        said.insert(0, "The data has no clock and no samples to tell")
    return f"What held it up? {'; '.join(said)}."


def _advice(run: RunRecord, findings: RunFindings, answers: Mapping[str, Answer]) -> str:
    """The one thing to do next."""
    shared = answers["utilisation"].verdict == "shared"
    trained, ours = findings.learning.trained.verdict, run.source == "Tandem run"
    advice = "Nothing needs mending; keep the best checkpoint."
    if run.state == "crashed" and trained != "diverged":
        advice = (
            "Start it again after mending what stopped it; a Tandem run goes on where it was last saved."
            if ours
            else "Mend what stopped it, then start it again."
        )
    elif trained == "diverged":
        advice = "Go back to a checkpoint from before it diverged, with a lower learning rate or a longer warm-up."
    elif trained == "degenerate":
        advice = "Look at the training and evaluation data before anything else."
    elif findings.network.judged.verdict == "bottleneck":
        how = " (exchange.kind=auto)" if ours else ""
        advice = f"A faster link, or an exchange that sends less{how}, would pay before anything else."
    elif shared:
        advice = "Stop the other programs on its machines, or give it machines of its own: its steps would be shorter."
    elif findings.learning.overfitting.verdict == "yes":
        advice = "Use the checkpoint from where the evaluation loss was lowest; more dropout or more data would help."
    elif run.holds_no_step:
        advice = "For a report on its training, bring back the journals of the machines that trained it."
    elif trained == "too_short":
        advice = "Let it run longer, and evaluate more often, before judging it."
    elif trained == "improving":
        advice = "Let it run on: it is worth it." if run.state != "running" else "Leave it running: it still improves."
    return f"What next? {advice}"
