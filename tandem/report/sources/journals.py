"""What the journals of a run tell, put in order, and every record checked as it is told."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Fact = dict[str, Any]
GpuValues = tuple[float, float, float]
"""Of one GPU in one sample, in the order of GPU_COLUMNS."""
Rows: TypeAlias = "array[float]"
"""Rows of numbers one after the other, the first of each its step: a long run has millions of them."""

NAN = float("nan")
# What is kept of a GPU, in the order of its rows, after the step.
GPU_COLUMNS = ("gpu_utilisation", "gpu_memory", "gpu_power")
GPU_ROW = 1 + len(GPU_COLUMNS)
# What is kept of a host, in the order of its rows, after the step.
HOST_COLUMNS = (
    "cpu",
    "memory",
    "sent",
    "received",
    "disk_read",
    "disk_written",
    *GPU_COLUMNS,
)
ROW = 1 + len(HOST_COLUMNS)
# What is kept of a log line and of an evaluation.
PROGRESS = (
    "steps",
    "train_loss",
    "learning_rate",
    "step_seconds",
    "exchanged_bytes",
    "network_sent_bytes",
    "network_received_bytes",
)
EVALUATION = ("eval_loss", "bleu")
# Losses and scores that are not finite are evidence; all else of a log line that is not is damage.
MAY_BE_ANYTHING = frozenset({"train_loss", "learning_rate"})
# The last records of a session, of which one tells when it was heard of: more in a row are hardly all damaged.
MOST_RECENT = 8
# Of anything that is counted: what a machine counts with, and what a number with a point can still be made of.
MOST = 2**63 - 1
# What a damaged record leads to, wherever it is looked into.
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Start:
    """What a process said of itself and the others as it began."""

    host: str
    process: int
    hosts: tuple[str, ...]
    world_size: int
    max_steps: int
    parameters: int
    device: str
    precision: str
    card: str | None
    """The GPU's name; None on a processor, and in journals of versions that did not write it."""
    card_memory_bytes: int | None
    batch_tokens: int | None
    micro_batches: int | None
    compiled: bool
    deterministic: bool | None
    """None where a version that did not write it ran on a GPU."""


@dataclass(frozen=True)
class Plan:
    """How the hosts' work is put together."""

    exchange: str
    local_steps: int


@dataclass
class SessionStory:
    """One start of a process, and what is known of its end."""

    first_step: float
    last_step: float
    started: float
    startup_seconds: float
    last_heard: float | None = None
    reason: str | None = None
    implied: bool = False
    """Whether the record of its start is lost."""


@dataclass
class Story:
    """What one rank's journal tells; a session that goes back in steps takes back what came after them."""

    sessions: list[SessionStory] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    progress: list[Fact] = field(default_factory=list)
    evaluations: list[Fact] = field(default_factory=list)
    samples: dict[str, Rows] = field(default_factory=dict)
    """Of each host, a row a second."""
    summaries: dict[str, Rows] = field(default_factory=dict)
    """Of each host, a row a log line."""
    gpu_samples: dict[str, dict[int, Rows]] = field(default_factory=dict)
    """Of each host and each of its GPUs, by the driver's number of it, a row a second."""
    links: dict[str, tuple[str | None, float | None]] = field(default_factory=dict)
    """Interface and link speed of each host."""
    plan: Plan | None = None
    notes: list[tuple[float, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """By part, of all steps, also of those that were taken again."""
    repeated_steps: float = 0.0
    unreadable: int = 0
    """Records that lack what a record of their kind has, or have something else in its place."""


def read_story(records: Iterable[Fact]) -> Story:
    """Go through a journal from its beginning to its end."""
    story = Story()
    recent: deque[Fact] = deque(maxlen=MOST_RECENT)
    for record in records:
        try:
            teller = _TELLERS.get(record["kind"])
            if teller is None:
                continue
            if teller is _tell_started:
                _close_session(story, recent)
            elif not story.sessions:
                _open_implied_session(story, record)
            teller(story, record)
            recent.append(record)
        except DAMAGE:
            story.unreadable += 1
    _close_session(story, recent)
    return story


def _open_implied_session(story: Story, record: Fact) -> None:
    """The record of the start is lost, but what follows it is not."""
    step = _step(record)
    story.sessions.append(SessionStory(step, step, _moment(record), 0.0, implied=True))


def _close_session(story: Story, recent: deque[Fact]) -> None:
    """Note the last that was heard of the session under way."""
    while story.sessions and recent:
        last = recent.pop()
        try:
            moment = _moment(last)
        except DAMAGE:
            continue
        session = story.sessions[-1]
        session.last_heard = moment
        # A sample names the step under way, which may never have been finished.
        session.last_step = max(session.last_step, _step(last) - (last["kind"] == "sampled"))
        recent.clear()


def _moment(record: Fact) -> float:
    return datetime.fromisoformat(record["time"]).timestamp()


def _step(record: Fact) -> float:
    return float(_whole(record["step"]))


def _whole(value: Any) -> int:
    """A count of things."""
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError
    return value


def _number(value: Any) -> float:
    """Any number, also one that is not finite."""
    if type(value) is not float and type(value) is not int:
        raise TypeError
    return float(value)


def _finite(value: Any) -> float:
    read = _number(value)
    if not math.isfinite(read):
        raise ValueError
    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _if_known(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError
    return tuple(_text(value) for value in values)


def _seconds(record: Fact) -> dict[str, float]:
    return {_text(part): _finite(seconds) for part, seconds in record["seconds"].items()}


def _link(use: Fact, interface: str | None) -> tuple[str | None, float | None]:
    link = use["link_mbit_per_second"]
    return interface, None if link is None else _finite(link)


def _tell_started(story: Story, record: Fact) -> None:
    step, moment, startup_seconds = _step(record), _moment(record), _finite(record["startup_seconds"])
    device = _text(record["device"])
    start = Start(
        host=_text(record["host"]),
        process=_whole(record["process"]),
        hosts=_texts(record["hosts"]),
        world_size=_whole(record["world_size"]),
        max_steps=_whole(record["max_steps"]),
        parameters=_whole(record["parameters"]),
        device=device,
        precision=_text(record["precision"]),
        card=_if_known(_text, record.get("card")),
        card_memory_bytes=_if_known(_whole, record.get("card_memory_bytes")),
        batch_tokens=_if_known(_whole, record.get("batch_tokens")),
        micro_batches=_if_known(_whole, record.get("micro_batches")),
        compiled=_flag(record.get("compiled", False)),
        # A processor computes the same bits every time, also where nothing was written about it.
        deterministic=_if_known(_flag, record.get("deterministic", device == "cpu" or None)),
    )
    reached = story.sessions[-1].last_step if story.sessions else step
    story.repeated_steps += max(reached - step, 0.0)
    for facts in (story.progress, story.evaluations):
        while facts and facts[-1]["step"] > step:
            facts.pop()
    for rows in (*story.samples.values(), *story.summaries.values()):
        _take_back(rows, ROW, step)
    for gpus in story.gpu_samples.values():
        for rows in gpus.values():
            _take_back(rows, GPU_ROW, step)
    if story.sessions:
        story.notes.append((step, "resumed"))
    story.starts.append(start)
    story.sessions.append(SessionStory(step, step, moment, startup_seconds))


def _take_back(rows: Rows, width: int, step: float) -> None:
    """Remove the rows of what came after a step."""
    while rows and rows[-width] > step:
        del rows[-width:]


def _tell_progressed(story: Story, record: Fact) -> None:
    numbers = {name: (_number if name in MAY_BE_ANYTHING else _finite)(record[name]) for name in PROGRESS}
    seconds = _seconds(record)
    if numbers["steps"] < 1 or numbers["step_seconds"] <= 0:
        raise ValueError
    story.progress.append({"step": _step(record), **numbers, "seconds": seconds})
    _add_seconds(story, seconds)


def _tell_evaluated(story: Story, record: Fact) -> None:
    if record["split"] == "dev":
        numbers = {name: _number(record[name]) for name in EVALUATION}
        story.evaluations.append({"step": _step(record), **numbers, "signature": _text(record["signature"])})


def _tell_sampled(story: Story, record: Fact) -> None:
    use = record["use"]
    gpus = [(gpu.get("index"), _gpu_values(gpu)) for gpu in use["gpus"]]
    # What is no number cannot become part of an array; and the row is whole before it is added to the others.
    row = array(
        "d",
        (
            _whole(record["step"]),
            use["cpu"],
            use["memory_used_bytes"] / use["memory_total_bytes"],
            use["sent_mbit_per_second"],
            use["received_mbit_per_second"],
            use["disk_read_mbyte_per_second"],
            use["disk_written_mbyte_per_second"],
            *(_means([values for _, values in gpus]) if gpus else (NAN, NAN, NAN)),
        ),
    )
    by_card = [(_whole(index), array("d", (row[0], *values))) for index, values in gpus if index is not None]
    rows = story.samples.get(use["host"])
    if rows is None:
        host, interface = _text(use["host"]), use["interface"]
        story.links[host] = _link(use, None if interface is None else _text(interface))
        rows = story.samples[host] = array("d")
    rows.extend(row)
    for index, values in by_card:
        story.gpu_samples.setdefault(use["host"], {}).setdefault(index, array("d")).extend(values)


def _gpu_values(gpu: Fact) -> GpuValues:
    """Its columns; not a number is what the card does not tell."""
    used, total = gpu["memory_used_bytes"], gpu["memory_total_bytes"]
    watts, cap = gpu["watts"], gpu["watts_cap"]
    return (
        NAN if gpu["utilisation"] is None else _number(gpu["utilisation"]),
        NAN if used is None or total is None else _number(used) / _number(total),
        NAN if watts is None or not cap else _number(watts) / _number(cap),
    )


def _means(gpus: Sequence[GpuValues]) -> list[float]:
    """Each column's mean over the cards that tell it; not a number where none does."""
    told = [[values[column] for values in gpus if not math.isnan(values[column])] for column in range(len(GPU_COLUMNS))]
    return [fmean(values) if values else NAN for values in told]


def _tell_surveyed(story: Story, record: Fact) -> None:
    step = _step(record)
    told = [(_text(use["host"]), _summary_row(step, use), _link(use, None)) for use in record["hosts"]]
    for host, row, link in told:
        story.summaries.setdefault(host, array("d")).extend(row)
        story.links.setdefault(host, link)


def _summary_row(step: float, use: Fact) -> Rows:
    gpus = (use["gpu_utilisation"], use["gpu_memory"], use["gpu_power"])
    return array(
        "d",
        (
            step,
            use["cpu"],
            use["memory"],
            use["sent_mbit_per_second"],
            use["received_mbit_per_second"],
            NAN,
            NAN,
            *(NAN if value is None else value for value in gpus),
        ),
    )


def _tell_planned(story: Story, record: Fact) -> None:
    story.plan = Plan(_text(record["exchange"]), max(_whole(record["local_steps"]), 1))


def _tell_noticed(story: Story, record: Fact) -> None:
    story.notes.append((_step(record), _text(record["message"])))


def _tell_ended(story: Story, record: Fact) -> None:
    _step(record)
    reason, seconds = _text(record["reason"]), _seconds(record)
    story.sessions[-1].reason = reason
    _add_seconds(story, seconds)


def _tell_saved(story: Story, record: Fact) -> None:
    """It says only that the run was alive."""
    _step(record)


def _add_seconds(story: Story, seconds: dict[str, float]) -> None:
    for part, spent in seconds.items():
        story.seconds[part] = story.seconds.get(part, 0.0) + spent


_TELLERS = {
    "started": _tell_started,
    "planned": _tell_planned,
    "progressed": _tell_progressed,
    "evaluated": _tell_evaluated,
    "sampled": _tell_sampled,
    "surveyed": _tell_surveyed,
    "noticed": _tell_noticed,
    "saved": _tell_saved,
    "ended": _tell_ended,
}
