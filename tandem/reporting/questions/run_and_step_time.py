"""How long did the run take, and how long was the average step?"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import pairwise

from tandem.monitor.records import FAILED, FINISHED
from tandem.reporting.answers import NO_TRAINING_HERE, Confidence, Evidence, Reply
from tandem.reporting.judge.findings import RunFindings
from tandem.reporting.run_record import RunRecord, TrainingSession
from tandem.units import duration, percent

STATES = {
    "finished": "The run finished",
    "stopped": "The run was stopped",
    "running": "The run is still going on",
    "crashed": "The run crashed",
    "unknown": "How the run ended is not in the data",
}
# Wall time cannot be below the time of the steps; it may seem so by as much as medians and rounded times are off.
SHORTEST_WALL = 0.9
# Half of the stretches within this share of the median is steady.
STEADY_SPREAD = 0.1
# Stretches that are enough for a middle half that means something.
ENOUGH_STRETCHES = 8


def wall_seconds(run: RunRecord) -> float | None:
    """Time from the first session's start to the last session's end; None where no clock tells it.

    A clock that tells less than training alone took was not read until the end, or was set: it tells nothing.
    """
    seconds = _clock_seconds(run)
    return None if seconds is not None and seconds < SHORTEST_WALL * _least_seconds(run) else seconds


def _least_seconds(run: RunRecord) -> float:
    """What the run's steps took at the least; 0 where that is not known."""
    if run.seconds:
        return run.training_seconds
    steps = sum(session.last_step - session.first_step for session in run.sessions)
    return (run.step_seconds.median or 0.0) * steps if run.axis == "step" else 0.0


def _clock_seconds(run: RunRecord) -> float | None:
    """Time between the first and the last moment of the sessions, by clocks that may have been set in between."""
    if not run.sessions or run.sessions[0].started is None or run.sessions[-1].ended is None:
        return None
    lasted = [
        max(each.ended - each.started, 0.0)
        for each in run.sessions
        if each.started is not None and each.ended is not None
    ]
    whole = run.sessions[-1].ended - run.sessions[0].started
    # A clock that was set back between two sessions makes the whole shorter than its parts.
    return max(whole, sum(lasted))


def working_seconds(run: RunRecord) -> float | None:
    """Wall time without the standstills between sessions; where no clock was read, steps times the time of a step.

    None also where the data begins in mid-run.
    """
    if run.steps_before:
        return None
    wall = wall_seconds(run)
    return (wall - sum(_standstills(run)) if wall is not None else None) or _estimated_seconds(run)


def _standstills(run: RunRecord) -> list[float]:
    return [
        max(later.started - earlier.ended, 0.0)
        for earlier, later in pairwise(run.sessions)
        if later.started is not None and earlier.ended is not None
    ]


def _lost_seconds(run: RunRecord) -> list[float]:
    """For each interruption the time from the last sign of one session to the first step of the next."""
    return [
        max(later.started + (later.startup_seconds or 0.0) - earlier.ended, 0.0)
        for earlier, later in pairwise(run.sessions)
        if later.started is not None and earlier.ended is not None
    ]


def _interruption_causes(run: RunRecord) -> list[str]:
    """Why the sessions before the last one ended, each cause once."""
    causes = Counter(_cause(session) for session in run.sessions[:-1] if session.reason is not None)
    return [f"{cause} ({times} times)" if times > 1 else cause for cause, times in causes.items()]


def _cause(session: TrainingSession) -> str:
    if session.signal is not None:
        return f"stopped by {session.signal}"
    if session.reason == FINISHED:
        return "finished, and went on later"
    return str(session.reason).removeprefix(FAILED).rstrip(". ")


def _silences(run: RunRecord) -> list[str]:
    """Processes that hung or were stopped for a while, and for how long in all."""
    seconds: dict[str, float] = {}
    for name, lasted in run.silences:
        seconds[name] = seconds.get(name, 0.0) + lasted
    return [f"{name} for {duration(lasted)}" for name, lasted in seconds.items()]


def _host_changes(run: RunRecord) -> list[str]:
    """Which hosts left and came between two sessions, and from which step on."""
    changes = []
    for earlier, later in pairwise(run.sessions):
        if not earlier.hosts or not later.hosts:
            continue
        gone = [host for host in earlier.hosts if host not in later.hosts]
        come = [host for host in later.hosts if host not in earlier.hosts]
        parts = [f"{word} {', '.join(hosts)}" for word, hosts in (("without", gone), ("with", come)) if hosts]
        if parts:
            changes.append(f"{' and '.join(parts)} from step {later.first_step + 1:,.0f} on")
    return changes


def _estimated_seconds(run: RunRecord) -> float | None:
    """Time of the run without a clock on the wall: by the clock of its steps, or steps times the time of a step."""
    if "compute" in run.seconds:
        return sum(run.seconds.values())
    curve = run.step_seconds.finite
    return float(curve.values.mean()) * run.last_step if len(curve) and run.axis == "step" else None


def answer_duration(run: RunRecord, findings: RunFindings) -> Reply:
    state = STATES[run.state] + (f": {run.failure.removesuffix('.')}" if run.failure else "")
    if run.holds_no_step:
        said = f"{state}; {NO_TRAINING_HERE}: it begins after step {run.last_step:,.0f}."
        return Reply("unknown", "none", said, {"steps": run.last_step, "planned_steps": run.max_steps})
    wall, evidence = wall_seconds(run), _evidence(run)
    # The duration may be known where the end is not.
    confidence: Confidence = "medium" if run.steps_before else "high"
    reply = Reply("measured" if run.state == "unknown" else run.state, confidence, "", evidence)
    if wall is not None:
        names = {"training_seconds": "training", "evaluation_seconds": "evaluation", "idle_seconds": "standstill"}
        parts = [f"{duration(evidence[name])} of {what}" for name, what in names.items() if evidence[name]]
        said = _wall_words(run, wall) + (f": {', '.join(parts)}" if parts else "")
        said += "; what came before is not in this journal" if run.steps_before else ""
    elif (wall := _estimated_seconds(run)) is not None:
        evidence["estimated_training_seconds"] = wall
        told = _clock_seconds(run)
        clock = "has no clock for the rest" if told is None else f"has a clock for {duration(told)} of it only"
        said = (
            f"it took about {duration(wall)} of training for {run.last_step:,.0f} steps, by the time of a step; "
            f"the log {clock}, so that this is an estimate"
        )
        reply = reply._replace(verdict="estimated", confidence="medium")
    else:
        said = "the data has no times" if run.last_step else "no step was taken"
        if run.last_step or run.state == "unknown":
            reply = reply._replace(verdict="unknown", confidence="none")
    interruptions = evidence["interruptions"]
    if interruptions:
        said += f"; interrupted {interruptions} time{'s' if interruptions > 1 else ''}"
        said += f" ({', '.join(causes)})" if (causes := evidence["interruption_causes"]) else ""
        if evidence["lost_seconds"] is not None:
            said += f", which cost {duration(evidence['lost_seconds'])} until the next step"
        if evidence["steps_taken_again"]:
            said += f" and {evidence['steps_taken_again']:,.0f} steps that were taken again"
        said += "".join(f"; {change}" for change in evidence["host_changes"] or ())
    said += "".join(f"; no sign of life from {silence}" for silence in evidence["silences"] or ())
    # A price of a part would pass for that of the whole.
    if wall is not None and not run.steps_before and (bill := findings.cost(wall)) is not None:
        evidence.update(cost_dollars=bill, machines_billed=findings.machines)
        said += f"; ${bill:,.2f}"
    return reply._replace(answer=f"{state}; {said}.")


def _wall_words(run: RunRecord, wall: float) -> str:
    """How long all steps took, or those that the data tells of."""
    if run.steps_before:
        return f"steps {run.steps_before + 1:,.0f} to {run.last_step:,.0f} took {duration(wall)} of wall time"
    return f"it took {duration(wall)} of wall time for {run.last_step:,.0f} {run.axis}s"


def _evidence(run: RunRecord) -> Evidence:
    wall, seconds = wall_seconds(run), run.seconds
    startups = [session.startup_seconds for session in run.sessions if session.startup_seconds is not None]
    gaps = _standstills(run)
    not_logged = None
    if wall is not None and "compute" in seconds:
        # Steps since the last log line, of a run that goes on or was killed; and the moments around it.
        not_logged = max(wall - sum(seconds.values()) - sum(startups) - sum(gaps), 0.0)
    return {
        "steps": run.last_step,
        "steps_not_in_the_data": run.steps_before or None,
        "interruptions": max(len(run.sessions) - 1, 0),
        "interruption_causes": _interruption_causes(run) or None,
        "silences": _silences(run) or None,
        "wall_seconds": wall,
        "training_seconds": run.training_seconds if seconds else None,
        "evaluation_seconds": seconds.get("evaluation", 0.0) if seconds else None,
        "checkpoint_seconds": seconds.get("checkpoint", 0.0) if seconds else None,
        "startup_seconds": sum(startups) if startups else None,
        "idle_seconds": sum(gaps) if gaps else None,
        "lost_seconds": sum(_lost_seconds(run)) if gaps else None,
        "host_changes": _host_changes(run) or None,
        "not_logged_seconds": not_logged,
        "steps_taken_again": run.repeated_steps or None,
        "planned_steps": run.max_steps,
    }


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
    if findings.processors is not None and findings.processors.disturbances:
        said.append(findings.processors.words)
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
