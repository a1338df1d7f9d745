"""What the journals of a run tell, put in order."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

Fact = dict[str, Any]
Rows: TypeAlias = "array[float]"
"""Rows of numbers one after the other, the first of each its step: a long run has millions of them."""

NAN = float("nan")
# What is kept of a host, in the order of its rows, after the step.
HOST_COLUMNS = (
    "cpu",
    "memory",
    "sent",
    "received",
    "disk_read",
    "disk_written",
    "gpu_utilisation",
    "gpu_memory",
    "gpu_power",
)
ROW = 1 + len(HOST_COLUMNS)
# What is kept of a log line and of an evaluation.
PROGRESS = (
    "step",
    "steps",
    "train_loss",
    "learning_rate",
    "step_seconds",
    "exchanged_bytes",
    "network_sent_bytes",
    "network_received_bytes",
)
EVALUATION = ("step", "eval_loss", "bleu")


@dataclass
class SessionStory:
    """One start of a process, and what is known of its end."""

    first_step: float
    last_step: float
    started: float
    startup_seconds: float
    last_heard: float | None = None
    reason: str | None = None


@dataclass
class Story:
    """What one rank's journal tells; a session that goes back in steps takes back what came after them."""

    sessions: list[SessionStory] = field(default_factory=list)
    starts: list[Fact] = field(default_factory=list)
    progress: list[Fact] = field(default_factory=list)
    evaluations: list[Fact] = field(default_factory=list)
    samples: dict[str, Rows] = field(default_factory=dict)
    """Of each host, a row a second."""
    summaries: dict[str, Rows] = field(default_factory=dict)
    """Of each host, a row a log line."""
    cards: dict[str, tuple[str | None, float | None]] = field(default_factory=dict)
    """Interface and link speed of each host."""
    plan: Fact | None = None
    notes: list[tuple[float, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """By part, of all steps, also of those that were taken again."""
    repeated_steps: float = 0.0
    unreadable: int = 0
    """Records without what a record of their kind has."""


def read_story(records: Iterable[Fact]) -> Story:
    """Go through a journal from its beginning to its end."""
    story, last = Story(), None
    for record in records:
        try:
            if record["kind"] == "started":
                _close_session(story, last)
            _TELLERS.get(record["kind"], _tell_nothing)(story, record)
            last = record
        except (KeyError, TypeError, ValueError, AttributeError):
            story.unreadable += 1
    _close_session(story, last)
    return story


def _close_session(story: Story, last: Fact | None) -> None:
    """Note the last that was heard of the session under way."""
    if story.sessions and last is not None:
        session = story.sessions[-1]
        session.last_heard = _moment(last)
        # A sample names the step under way, which may never have been finished.
        session.last_step = max(session.last_step, float(last["step"] - (last["kind"] == "sampled")))


def _moment(record: Fact) -> float:
    return datetime.fromisoformat(record["time"]).timestamp()


def _tell_started(story: Story, record: Fact) -> None:
    step, moment = float(record["step"]), _moment(record)
    reached = story.sessions[-1].last_step if story.sessions else step
    story.repeated_steps += max(reached - step, 0.0)
    for facts in (story.progress, story.evaluations):
        while facts and facts[-1]["step"] > step:
            facts.pop()
    for rows in (*story.samples.values(), *story.summaries.values()):
        while rows and rows[-ROW] > step:
            del rows[-ROW:]
    if story.sessions:
        story.notes.append((step, "resumed"))
    story.starts.append(record)
    story.sessions.append(SessionStory(step, step, moment, float(record["startup_seconds"])))


def _tell_progressed(story: Story, record: Fact) -> None:
    story.progress.append({**{name: float(record[name]) for name in PROGRESS}, "seconds": dict(record["seconds"])})
    _add_seconds(story, record)


def _tell_evaluated(story: Story, record: Fact) -> None:
    if record["split"] == "dev":
        numbers = {name: float(record[name]) for name in EVALUATION}
        story.evaluations.append({**numbers, "signature": str(record["signature"])})


def _tell_sampled(story: Story, record: Fact) -> None:
    use = record["use"]
    gpus = use["gpus"]
    row = (
        record["step"],
        use["cpu"],
        use["memory_used_bytes"] / use["memory_total_bytes"],
        use["sent_mbit_per_second"],
        use["received_mbit_per_second"],
        use["disk_read_mbyte_per_second"],
        use["disk_written_mbyte_per_second"],
        *(_gpu_row(gpus) if gpus else (NAN, NAN, NAN)),
    )
    rows = story.samples.get(use["host"])
    if rows is None:
        rows = story.samples[use["host"]] = array("d")
        story.cards[use["host"]] = (use["interface"], use["link_mbit_per_second"])
    rows.extend(row)


def _gpu_row(gpus: list[Fact]) -> tuple[float, float, float]:
    count = len(gpus)
    capped = all(gpu["watts"] is not None and gpu["watts_cap"] for gpu in gpus)
    return (
        sum(gpu["utilisation"] for gpu in gpus) / count,
        sum(gpu["memory_used_bytes"] / gpu["memory_total_bytes"] for gpu in gpus) / count,
        sum(gpu["watts"] / gpu["watts_cap"] for gpu in gpus) / count if capped else NAN,
    )


def _tell_surveyed(story: Story, record: Fact) -> None:
    for use in record["hosts"]:
        gpus = (use["gpu_utilisation"], use["gpu_memory"], use["gpu_power"])
        story.summaries.setdefault(use["host"], array("d")).extend(
            (
                record["step"],
                use["cpu"],
                use["memory"],
                use["sent_mbit_per_second"],
                use["received_mbit_per_second"],
                NAN,
                NAN,
                *(NAN if value is None else value for value in gpus),
            )
        )
        story.cards.setdefault(use["host"], (None, use["link_mbit_per_second"]))


def _tell_planned(story: Story, record: Fact) -> None:
    story.plan = record


def _tell_noticed(story: Story, record: Fact) -> None:
    story.notes.append((float(record["step"]), str(record["message"])))


def _tell_ended(story: Story, record: Fact) -> None:
    story.sessions[-1].reason = str(record["reason"])
    _add_seconds(story, record)


def _tell_nothing(story: Story, record: Fact) -> None:
    """Records of this kind change nothing in the story."""


def _add_seconds(story: Story, record: Fact) -> None:
    for part, seconds in record["seconds"].items():
        story.seconds[part] = story.seconds.get(part, 0.0) + seconds


_TELLERS = {
    "started": _tell_started,
    "planned": _tell_planned,
    "progressed": _tell_progressed,
    "evaluated": _tell_evaluated,
    "sampled": _tell_sampled,
    "surveyed": _tell_surveyed,
    "noticed": _tell_noticed,
    "ended": _tell_ended,
}
