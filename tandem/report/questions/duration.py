"""How long did the run take?"""

from __future__ import annotations

from tandem.report.answers import Answer, Confidence, Evidence
from tandem.report.figures import duration
from tandem.report.findings import Findings, cost
from tandem.report.record import RunRecord

QUESTION = "How long did the run take?"
EXPLANATION = (
    "Wall time is what the bill counts; training time is what the model got of it. Evaluations, checkpoints, start-ups "
    "and interruptions make the difference, and steps per hour alone hide it."
)

STATES = {
    "finished": "The run finished",
    "stopped": "The run was stopped",
    "running": "The run is still going on",
    "crashed": "The run crashed",
    "unknown": "How the run ended is not in the data",
}


def wall_seconds(run: RunRecord) -> float | None:
    """From the first sign of life to the last."""
    if not run.sessions or run.sessions[0].started is None or run.sessions[-1].ended is None:
        return None
    return run.sessions[-1].ended - run.sessions[0].started


def working_seconds(run: RunRecord) -> float | None:
    """What a program was running for: the wall time without the standstills between its sessions."""
    wall = wall_seconds(run)
    return None if wall is None else wall - sum(_standstills(run))


def _standstills(run: RunRecord) -> list[float]:
    return [
        later.started - earlier.ended
        for earlier, later in zip(run.sessions, run.sessions[1:], strict=False)
        if later.started is not None and earlier.ended is not None
    ]


def estimated_seconds(run: RunRecord) -> float | None:
    """Steps times the time of a step, where no clock was read."""
    curve = run.step_seconds.finite
    return float(curve.values.mean()) * run.last_step if len(curve) and run.axis == "step" else None


def answer_duration(run: RunRecord, findings: Findings) -> Answer:
    wall, evidence = wall_seconds(run), _evidence(run)
    # How it ended is one thing, how long it took another: that is known here.
    verdict: str = "measured" if run.state == "unknown" else run.state
    confidence: Confidence = "high"
    state = STATES[run.state] + (f": {run.failure.removesuffix('.')}" if run.failure else "")
    if wall is not None:
        parts = [
            f"{duration(evidence[name])} of {what}"
            for name, what in (
                ("training_seconds", "training"),
                ("evaluation_seconds", "evaluation"),
                ("idle_seconds", "standstill"),
            )
            if evidence.get(name)
        ]
        said = f"{duration(wall)} of wall time for {run.last_step:,.0f} {run.axis}s" + (
            f": {', '.join(parts)}" if parts else ""
        )
    elif (estimate := estimated_seconds(run)) is not None:
        evidence["estimated_training_seconds"] = wall = estimate
        said = (
            f"about {duration(estimate)} of training for {run.last_step:,.0f} steps, by the time of a step; "
            "the log has no clock for the rest"
        )
        verdict, confidence = "estimated", "medium"
    else:
        said = "the data has no times" if run.last_step else "no step was taken"
        if run.last_step or run.state == "unknown":
            verdict, confidence = "unknown", "none"
    interruptions = evidence["interruptions"]
    if interruptions:
        said += f"; interrupted {interruptions} time{'s' if interruptions > 1 else ''}"
    if wall is not None and (bill := cost(findings, wall)) is not None:
        evidence.update(cost_dollars=bill, machines_billed=findings.machines)
        said += f"; ${bill:,.2f}"
    return Answer(
        id="duration",
        question=QUESTION,
        verdict=verdict,
        confidence=confidence,
        answer=f"{state}; {'it took ' if wall is not None else ''}{said}.",
        evidence=evidence,
        explanation=EXPLANATION,
    )


def _evidence(run: RunRecord) -> Evidence:
    evidence: Evidence = {"steps": run.last_step, "interruptions": max(len(run.sessions) - 1, 0)}
    wall = wall_seconds(run)
    if wall is not None:
        evidence["wall_seconds"] = wall
    if run.seconds:
        apart = {part: run.seconds.get(part, 0.0) for part in ("evaluation", "checkpoint")}
        evidence["training_seconds"] = sum(run.seconds.values()) - sum(apart.values())
        evidence.update({f"{part}_seconds": seconds for part, seconds in apart.items()})
    startups = [session.startup_seconds for session in run.sessions if session.startup_seconds is not None]
    if startups:
        evidence["startup_seconds"] = sum(startups)
    if gaps := _standstills(run):
        evidence["idle_seconds"] = sum(gaps)
    if wall is not None and "compute" in run.seconds:
        told = sum(run.seconds.values()) + evidence.get("startup_seconds", 0.0) + evidence.get("idle_seconds", 0.0)
        # Steps since the last log line, of a run that goes on or was killed; and the moments around it.
        evidence["not_logged_seconds"] = max(wall - told, 0.0)
    if run.repeated_steps:
        evidence["steps_taken_again"] = run.repeated_steps
    if run.max_steps is not None:
        evidence["planned_steps"] = run.max_steps
    return evidence
