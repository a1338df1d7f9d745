"""How long was the average step?"""

from __future__ import annotations

from collections import Counter

from tandem.report.answers import Answer, Evidence
from tandem.report.figures import duration, percent
from tandem.report.findings import Findings
from tandem.report.record import RunRecord

QUESTION = "How long did a step take on average?"
EXPLANATION = (
    "The median is the honest average: a few stretches with a hiccup pull the mean up. Steps per second and seconds "
    "per step are easily confused; this is seconds per step, evaluations and checkpoints not counted."
)
# Half of the stretches within this share of the median is steady.
STEADY_SPREAD = 0.1


def answer_step_time(run: RunRecord, findings: Findings) -> Answer:
    facts = findings.steps
    if facts is None:
        return Answer(
            id="step_time",
            question=QUESTION,
            verdict="unknown",
            confidence="none",
            answer="The data has no step times.",
            evidence={},
            explanation=EXPLANATION,
        )
    stretch = f" (each point a mean over {run.steps_per_point:,.0f} steps)" if run.steps_per_point else ""
    said = (
        f"{duration(facts.median)}, the middle half between {duration(facts.low)} and {duration(facts.high)}{stretch}"
    )
    if facts.outliers:
        causes = Counter(outlier.cause for outlier in facts.outliers)
        cause, _ = causes.most_common(1)[0]
        why = "the data does not say why" if cause == "unknown" else f"mostly {cause}"
        said += (
            f"; {percent(facts.outlier_share)} of the stretches stand out, the longest {duration(facts.longest)} a "
            f"step at step {facts.outliers[0].step:,.0f} ({why})"
        )
    if said_of_batches := _batch_words(run):
        said += f"; {said_of_batches}"
    return Answer(
        id="step_time",
        question=QUESTION,
        verdict="steady" if facts.spread <= STEADY_SPREAD else "varying",
        # Eight points are enough for a middle half that means something.
        confidence="high" if facts.points >= 8 else "low",
        answer=f"{said}.",
        evidence={
            "median_seconds": facts.median,
            "mean_seconds": facts.mean,
            "middle_half_seconds_range": [facts.low, facts.high],
            "longest_seconds": facts.longest,
            "stretches": facts.points,
            "outlier_share": facts.outlier_share,
            "outliers": [
                {"step": outlier.step, "seconds": outlier.seconds, "cause": outlier.cause} for outlier in facts.outliers
            ],
            **_batch_evidence(run),
        },
        explanation=EXPLANATION,
    )


def _batch_words(run: RunRecord) -> str:
    """Into what the work of a step was divided, and where memory did not suffice for that."""
    team, said = run.team, []
    if team.micro_batches is not None and team.batch_tokens is not None:
        several = f"{team.micro_batches:,} micro-batches" if team.micro_batches > 1 else "one micro-batch"
        said.append(f"a step is {several} of at most {team.batch_tokens:,} tokens on either side")
    said += [
        f"a GPU had too little memory at step {split.step:,.0f}, from where on that session worked through each "
        f"micro-batch in {split.parts} parts"
        for split in run.splits
    ]
    return "; ".join(said)


def _batch_evidence(run: RunRecord) -> Evidence:
    evidence: Evidence = {"micro_batches": run.team.micro_batches, "micro_batch_tokens": run.team.batch_tokens}
    if run.splits:
        evidence["micro_batch_splits"] = [{"step": split.step, "parts": split.parts} for split in run.splits]
    return {name: value for name, value in evidence.items() if value is not None}
