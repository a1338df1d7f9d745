"""How long was the average step?"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from tandem.reporting.answers import Reply
from tandem.reporting.judge.findings import RunFindings
from tandem.reporting.run_record import RunRecord
from tandem.units import duration, percent

# Half of the stretches within this share of the median is steady.
STEADY_SPREAD = 0.1
# Stretches that are enough for a middle half that means something.
ENOUGH_STRETCHES = 8


def answer_step_time(run: RunRecord, findings: RunFindings) -> Reply:
    facts, team = findings.steps, run.team
    if facts is None:
        return Reply("unknown", "none", "The data has no step times.", {})
    stretch = f" (each point a mean over {run.steps_per_point:,.0f} steps)" if run.steps_per_point else ""
    low, high = map(duration, facts.middle_half_seconds_range)
    said = [f"{duration(facts.median_seconds)}, the middle half between {low} and {high}{stretch}"]
    if facts.outliers:
        ((cause, _),) = Counter(outlier.cause for outlier in facts.outliers).most_common(1)
        why = "the data does not say why" if cause == "unknown" else f"mostly {cause}"
        said.append(
            f"{percent(facts.outlier_share)} of the stretches stand out, the longest "
            f"{duration(facts.longest_seconds)} a step at step {facts.outliers[0].step:,.0f} ({why})"
        )
    if team.micro_batches is not None and team.batch_tokens is not None:
        several = f"{team.micro_batches:,} micro-batches" if team.micro_batches > 1 else "one micro-batch"
        said.append(f"a step is {several} of at most {team.batch_tokens:,} tokens on either side")
    said += [
        f"a GPU had too little memory at step {split.step:,.0f}, from where on that session worked through each "
        f"micro-batch in {split.parts} parts"
        for split in run.splits
    ]
    evidence = {
        **asdict(facts),
        "micro_batches": team.micro_batches,
        "micro_batch_tokens": team.batch_tokens,
        "micro_batch_splits": [asdict(split) for split in run.splits] or None,
    }
    verdict = "steady" if facts.spread <= STEADY_SPREAD else "varying"
    return Reply(verdict, "high" if facts.stretches >= ENOUGH_STRETCHES else "low", f"{'; '.join(said)}.", evidence)
