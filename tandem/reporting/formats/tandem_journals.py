"""What the journal of one rank says about a run, from its first line to its last."""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from tandem.metrics import DEV
from tandem.monitor.host_summary import gpu_shares, mean_gpu_shares
from tandem.monitor.journal_reader import UnreadableRecordError, kind_of, read_record
from tandem.monitor.records import (
    Ended,
    Evaluated,
    Noticed,
    Planned,
    Progressed,
    Record,
    Returned,
    RolledBack,
    Sampled,
    Silent,
    Started,
    Surveyed,
)
from tandem.monitor.sampler import LATER_EVERY_SECONDS
from tandem.reporting.run_record import TrainingSession

Rows: TypeAlias = "array[float]"
"""Rows of numbers one after the other, the first of each its step: a long run has millions of them."""

NAN = float("nan")
NO_GPUS = (NAN, NAN, NAN)
# Why a session ended that wrote no end.
WITHOUT_A_WORD = "ended without a word"
# What follows the step in the rows of a GPU and of a host; unknown values are nan.
GPU_COLUMNS = ("gpu_utilisation", "gpu_memory", "gpu_power")
CPU_COLUMNS = ("cpu_own", "cpu_others", "cpu_steal")
HOST_COLUMNS = ("cpu", "memory", "sent", "received", "disk_read", "disk_written", *CPU_COLUMNS, *GPU_COLUMNS)


@dataclass
class HostRows:
    """Resources of one host."""

    interface: str | None
    link_mbit_per_second: float | None
    rows: Rows = field(default_factory=lambda: array("d"))
    """Rows of HOST_COLUMNS."""
    gpu_rows: dict[int, Rows] = field(default_factory=dict)
    """Rows of GPU_COLUMNS by the driver's number of the GPU."""

    def remove_after(self, step: float) -> None:
        for rows, columns in ((self.rows, HOST_COLUMNS), *((rows, GPU_COLUMNS) for rows in self.gpu_rows.values())):
            width = 1 + len(columns)
            while rows and rows[-width] > step:
                del rows[-width:]


@dataclass
class RankHistory:
    """All that one rank's journal says; a session that goes back in steps takes back what came after them."""

    sessions: list[TrainingSession] = field(default_factory=list)
    starts: list[Started] = field(default_factory=list)
    start_lost: bool = False
    """Whether the record of the first session's start is missing."""
    progress: list[Progressed] = field(default_factory=list)
    evaluations: list[Evaluated] = field(default_factory=list)
    """Those on dev."""
    other_evaluations: list[Evaluated] = field(default_factory=list)
    """Those on further dev sets."""
    samples: dict[str, HostRows] = field(default_factory=dict)
    """The samples of the host whose journal it is: a row a second, also where a sample stands for several."""
    summaries: dict[str, HostRows] = field(default_factory=dict)
    """The summaries of all hosts: a row a survey."""
    plan: Planned | None = None
    notes: list[tuple[float, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by part, also of steps that were taken again."""
    roll_backs: list[RolledBack] = field(default_factory=list)
    silences: list[tuple[str, float]] = field(default_factory=list)
    """Processes that were silent for a while, and the seconds."""
    repeated_steps: float = 0.0
    newest: Record | None = None
    """The newest record but for the notices after it."""
    late_notices: list[Noticed] = field(default_factory=list)
    """Notices after the newest other record: the next session's, if they were written while it started up."""
    unreadable: int = 0
    """Records that lack what a record of their kind has, or have something else in its place."""

    @property
    def steps_before(self) -> int:
        """Steps from before all that the journal tells of; 0 if the record of its first start is lost."""
        return 0 if self.start_lost else min((start.step for start in self.starts), default=0)

    @property
    def first_step(self) -> int:
        """The step that the run began after: 0, or that of another run whose optimizer it took over."""
        return self.starts[0].first_step if self.starts else 0

    def add(self, record: Record) -> None:
        """Add the next record of the journal."""
        if isinstance(record, Noticed):
            self.notes.append((float(record.step), record.message))
            self.late_notices.append(record)
            return
        if isinstance(record, Started):
            self._start(record)
        elif not self.sessions:
            self.start_lost = True
            self._open_session(record)
        self.newest, self.late_notices = record, []
        match record:
            case Sampled():
                self._add_sample(record)
            case Progressed():
                self.progress.append(record)
                self._add_seconds(record.seconds)
            case Surveyed():
                self._add_survey(record)
            case Evaluated():
                (self.evaluations if record.split == DEV else self.other_evaluations).append(record)
            case Planned():
                self.plan = record
            case RolledBack():
                self._roll_back(record)
            case Silent():
                self.notes.append((float(record.step), record.message))
            case Returned():
                self.notes.append((float(record.step), record.message))
                self.silences.append((f"rank {record.rank} on {record.host}", record.seconds))
            case Ended():
                self.sessions[-1] = replace(self.sessions[-1], reason=record.reason, signal=record.signal)
                self._add_seconds(record.seconds)

    def close_session(self, next_began: float = math.inf) -> None:
        """Note the last that was heard of the newest session, before the next one began."""
        if self.newest is not None:
            session = self.sessions[-1]
            own = [notice for notice in self.late_notices if notice.timestamp < next_began]
            # A sample names the step under way, which may never have been finished.
            reached = self.newest.step - isinstance(self.newest, Sampled)
            last_step = max([session.first_step, float(reached), *(float(notice.step) for notice in own)])
            ended = max([self.newest.timestamp, *(notice.timestamp for notice in own)])
            self.sessions[-1] = replace(session, last_step=last_step, ended=ended)

    def _open_session(self, first: Record, startup_seconds: float = 0.0, hosts: Sequence[str] = ()) -> None:
        step = float(first.step)
        session = TrainingSession(
            first_step=step,
            last_step=step,
            started=first.timestamp - startup_seconds,
            startup_seconds=startup_seconds,
            hosts=tuple(hosts),
        )
        self.sessions.append(session)

    def _start(self, record: Started) -> None:
        """Open a session, and remove what came after its first step."""
        step = float(record.step)
        if self.sessions:
            self.close_session(record.timestamp - record.startup_seconds)
            if self.sessions[-1].reason is None:
                self.sessions[-1] = replace(self.sessions[-1], reason=WITHOUT_A_WORD)
            self.repeated_steps += max(self.sessions[-1].last_step - step, 0.0)
            self.notes.append((step, "resumed"))
        self._remove_after(step)
        # A run that was killed before it was saved again does not know that it ever went back.
        self.roll_backs = [back for back in self.roll_backs if back.to_step < step]
        self.starts.append(record)
        self._open_session(record, record.startup_seconds, record.hosts)

    def _roll_back(self, record: RolledBack) -> None:
        """Remove what came after the step that training went back to."""
        self.repeated_steps += max(record.step - record.to_step, 0)
        self.notes.append((float(record.step), f"{record.reason}; {record.remedy}"))
        self.roll_backs.append(record)
        self._remove_after(float(record.to_step))

    def _remove_after(self, step: float) -> None:
        for records in (self.progress, self.evaluations, self.other_evaluations):
            while records and records[-1].step > step:
                records.pop()
        for host in (*self.samples.values(), *self.summaries.values()):
            host.remove_after(step)

    def _add_seconds(self, seconds: Mapping[str, float]) -> None:
        for part, spent in seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + spent

    def _add_sample(self, record: Sampled) -> None:
        step, use = float(record.step), record.use
        if (host := self.samples.get(use.host)) is None:
            link = use.link_mbit_per_second
            host = self.samples[use.host] = HostRows(use.interface, None if link is None else float(link))
        # Every second weighs the same, however often the host was sampled; one that hung was not watched meanwhile.
        rows = round(min(max(use.seconds, 1.0), LATER_EVERY_SECONDS))
        host.rows.fromlist(
            rows
            * [
                step,
                use.cpu,
                use.memory_used_bytes / use.memory_total_bytes,
                use.sent_mbit_per_second,
                use.received_mbit_per_second,
                use.disk_read_mbyte_per_second,
                use.disk_written_mbyte_per_second,
                *_known(use.cpu_own, use.cpu_others, use.cpu_steal),
                *(_known(*mean_gpu_shares(use.gpus)) if use.gpus else NO_GPUS),
            ]
        )
        for gpu in use.gpus:
            if gpu.index is not None:
                host.gpu_rows.setdefault(gpu.index, array("d")).fromlist(rows * [step, *_known(*gpu_shares(gpu))])

    def _add_survey(self, record: Surveyed) -> None:
        for use in record.hosts:
            if (host := self.summaries.get(use.host)) is None:
                host = self.summaries[use.host] = HostRows(None, use.link_mbit_per_second)
            rates = (use.sent_mbit_per_second, use.received_mbit_per_second)
            gpus = _known(use.gpu_utilisation, use.gpu_memory, use.gpu_power) if use.gpu_count else NO_GPUS
            cores = _known(use.cpu_own, use.cpu_others, use.cpu_steal)
            host.rows.fromlist([float(record.step), use.cpu, use.memory, *rates, NAN, NAN, *cores, *gpus])


def read_history(path: Path, without: Container[str | None] = ()) -> RankHistory:
    """Read a whole journal; kinds of records that are not wanted cost next to nothing."""
    history = RankHistory()
    with path.open("rb") as lines:
        for line in lines:
            if without and kind_of(line) in without:
                continue
            try:
                record = read_record(line)
            except UnreadableRecordError:
                # A kind of record that only other versions of Tandem write is not damage.
                history.unreadable += kind_of(line) is not None
                continue
            if record is not None:
                history.add(record)
    history.close_session()
    return history


def _known(*shares: float | None) -> list[float]:
    return [NAN if share is None else share for share in shares]
