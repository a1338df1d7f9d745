"""The state of a run as its journals show it, updated line by line for `tandem watch`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tandem.metrics import DEV
from tandem.monitor.host_summary import summarise
from tandem.monitor.journal_reader import UnreadableRecordError, read_record
from tandem.monitor.records import (
    Ended,
    Evaluated,
    HostSummary,
    Noticed,
    Planned,
    Progressed,
    Record,
    Returned,
    RolledBack,
    Sampled,
    Saved,
    Silent,
    Started,
    Surveyed,
)
from tandem.units import elapsed, rank_list

# As many as the widest terminal has room for.
RECENT_LOSSES = 200
RECENT_MESSAGES = 20
# All processes of a session begin together: one that begins later than this belongs to the next session.
TOGETHER_SECONDS = 60.0
# A host is sampled every second, later every five: so long without a sample is no hiccup.
SILENT_SECONDS = 15.0
# Where nothing is sampled, the next log line is awaited for this many times what the last stretch took...
SILENT_STRETCHES = 3.0
# ...and an evaluation or a start, which may take longer than any stretch, for at least this long.
SILENT_AT_LEAST = 60.0


@dataclass(frozen=True)
class HostState:
    """The newest resources of a host: one sample, or else the means between two surveys."""

    time: float
    summary: HostSummary
    sampled: bool


@dataclass
class SessionState:
    """The processes that work together from a start to an end, as far as their journals are here."""

    started: Started
    step: int
    starts: dict[int, float] = field(default_factory=dict)
    """When each rank began, by the clock of its host."""
    progressed: Progressed | None = None
    sampled: bool = False
    saved: Saved | None = None
    newest_kind: str = ""
    """The kind of the reporting rank's newest record."""
    endings: dict[int, Ended] = field(default_factory=dict)
    silent: dict[int, Silent] = field(default_factory=dict)
    """The silent processes by rank, as somebody has written down."""
    step_time: float = 0.0
    """When the newest step was first heard of."""

    @property
    def began(self) -> float:
        return min(self.starts.values())

    @property
    def reporting_rank(self) -> int | None:
        """The lowest rank: its records are used where all ranks write the same."""
        return min(self.starts, default=None)

    @property
    def ended(self) -> Ended | None:
        """The end of the session, as the lowest rank recorded it."""
        return self.endings[min(self.endings)] if self.endings else None

    def accepts(self, rank: int, time: float) -> bool:
        """Whether a process that starts now is one of this session's."""
        return rank not in self.starts and not self.endings and time - self.began < TOGETHER_SECONDS


@dataclass(frozen=True)
class SilentProcesses:
    """Processes or a host that nothing is heard of."""

    who: str
    seconds: float
    phase: str
    """The phase that they were in; empty if it is not known."""


class RunState:
    """What all sessions of a run add up to, and the newest session."""

    def __init__(self) -> None:
        self.sessions = 0
        self.session: SessionState | None = None
        self.losses: deque[tuple[int, float]] = deque(maxlen=RECENT_LOSSES)
        self.evaluated: dict[str, list[Evaluated]] = {DEV: []}
        """The evaluations on each dev set, by its name."""
        self.messages: deque[Noticed] = deque(maxlen=RECENT_MESSAGES)
        self.hosts: dict[str, HostState] = {}
        self.last_record_time = 0.0
        self.last_written_time = 0.0
        """The same by the clock of the host that wrote it."""
        self.last_pause_time = 0.0
        """When an evaluation or a checkpoint last ended, in which no step is taken."""
        self._last_work_time = 0.0
        """Time of the newest record that belongs to a session; notices may come before the start of theirs."""
        self.unreadable = 0
        """How many lines were no records as this version of Tandem knows them."""

    @property
    def evaluations(self) -> list[Evaluated]:
        """The evaluations on dev."""
        return self.evaluated[DEV]

    def add_line(self, rank: int, line: bytes) -> None:
        """Update with a line of a rank's journal; what another version of Tandem wrote differently is passed over."""
        try:
            record = read_record(line)
        except UnreadableRecordError:
            self.unreadable += 1
            return
        if record is None:
            return
        self.last_record_time = max(self.last_record_time, record.timestamp)
        self.last_written_time = max(self.last_written_time, record.timestamp)
        if isinstance(record, Started):
            self._start(rank, record)
        elif isinstance(record, Noticed):
            # Some come before the start of the session that they belong to.
            self._add_message(record)
        elif self.session is not None and rank in self.session.starts:
            self._last_work_time = max(self._last_work_time, record.timestamp)
            self._update(self.session, rank, record)

    def evaluating(self, every: int | None) -> bool:
        """Whether the steps are waiting for an evaluation, which is due every so many of them, where that is known.

        Only its end is recorded: until then, the newest record is that of a stretch of steps in which it fell due.
        """
        session = self.session
        if session is None or session.progressed is None or session.newest_kind != Progressed.kind:
            return False
        last = session.progressed.step
        before = last - session.progressed.steps
        # Without the settings: the first evaluation of a run comes after as many steps as every other one.
        every = every or min((one.step for one in self.evaluations if one.step), default=None)
        due = last == session.progressed.max_steps or (every is not None and last // every > before // every)
        return due and not any(before < evaluated.step <= last for evaluated in self.evaluations)

    def silent_seconds(self, now: float) -> float | None:
        """For how long nothing has been written, where that is too long for a run that is alive."""
        session = self.session
        if session is None or session.ended is not None:
            return None
        patience = SILENT_SECONDS if session.sampled else SILENT_AT_LEAST
        if session.progressed is not None and not session.sampled:
            stretch = sum(session.progressed.seconds.values())
            patience = max(patience, SILENT_STRETCHES * stretch)
        silent = now - self.last_record_time
        return silent if silent > patience else None

    def _age(self, record: Record) -> float:
        """Seconds since a record was written, by the clocks of those who write."""
        return self.last_written_time - record.timestamp

    def silences(self, now: float) -> list[SilentProcesses]:
        """Everybody known to be silent and since when: as recorded, or else hosts whose samples stay away."""
        session = self.session
        if session is None or session.ended is not None or self.silent_seconds(now) is not None:
            return []
        recorded = {id(silent): silent for silent in session.silent.values()}.values()
        if recorded:
            return [
                SilentProcesses(
                    f"{rank_list(silent.ranks)} on {silent.host}", self._age(silent) + silent.seconds, silent.phase
                )
                for silent in recorded
            ]
        sampled = {name: host.time for name, host in self.hosts.items() if host.sampled}
        # By the newest sample, not by the clock here, which may be another.
        newest = max(sampled.values(), default=0.0)
        return [
            SilentProcesses(name, newest - time, "") for name, time in sampled.items() if newest - time > SILENT_SECONDS
        ]

    def stalled_seconds(self) -> float | None:
        """For how long no step was taken, where that is too long and nothing else explains it."""
        session = self.session
        if session is None or session.progressed is None or session.ended is not None:
            return None
        stretch = sum(session.progressed.seconds.values())
        stalled = self.last_written_time - max(session.step_time, self.last_pause_time)
        return stalled if stalled > max(SILENT_AT_LEAST, SILENT_STRETCHES * stretch) else None

    def _start(self, rank: int, started: Started) -> None:
        """Add a process to the session, or open a new one and drop what came after its first step."""
        session = self.session
        if session is None or not session.accepts(rank, started.timestamp):
            if session is not None:
                self._add_message(_continuation(session, started, started.timestamp - self._last_work_time))
            self.session = session = SessionState(started, started.step)
            self.sessions += 1
            # The hosts of this session will write again.
            self.hosts.clear()
            self._forget_after(started.step)
        session.starts[rank] = self._last_work_time = started.timestamp
        if rank == session.reporting_rank:
            session.started = started

    def _forget_after(self, step: int) -> None:
        """Drop the numbers of steps that are taken again."""
        while self.losses and self.losses[-1][0] > step:
            self.losses.pop()
        for name, evaluations in self.evaluated.items():
            self.evaluated[name] = [evaluated for evaluated in evaluations if evaluated.step <= step]

    def _update(self, session: SessionState, rank: int, record: Record) -> None:
        reports, time = rank == session.reporting_rank, record.timestamp
        if reports and isinstance(record, Progressed | Evaluated | Saved | RolledBack):
            session.newest_kind = record.kind
            self.last_pause_time = time
        if isinstance(record, Sampled | Progressed) and record.step - isinstance(record, Sampled) > session.step:
            session.step_time = time
        match record:
            # Where only the newest of a kind are read, they come last: this may be the end of the session before.
            case Sampled() | Surveyed() if time < session.starts[rank]:
                pass
            case Sampled():
                session.sampled = True
                # A sample names the step under way, which has not been taken yet.
                session.step = max(session.step, record.step - 1)
                self._update_host(HostState(time, summarise([record.use], {}), sampled=True))
            case Surveyed():
                for summary in record.hosts:
                    self._update_host(HostState(time, summary, sampled=False))
            case Silent():
                session.silent.update(dict.fromkeys(record.ranks, record))
                self._add_message(Noticed(time=record.time, step=record.step, message=record.message))
            case Returned():
                session.silent.pop(record.rank, None)
                self._add_message(Noticed(time=record.time, step=record.step, message=record.message))
            case Ended():
                session.endings[rank] = record
            case Planned():
                self._add_message(Noticed(time=record.time, step=record.step, message=f"exchange: {record.reason}"))
            case RolledBack():
                self._add_message(
                    Noticed(time=record.time, step=record.step, message=f"{record.reason}; {record.remedy}")
                )
                if reports:
                    session.step = record.to_step
                    self._forget_after(record.to_step)
            case Progressed() if reports:
                session.progressed = record
                session.step = max(session.step, record.step)
                self.losses.append((record.step, record.train_loss))
            case Evaluated() if reports:
                self.evaluated.setdefault(record.split, []).append(record)
            case Saved() if reports:
                session.saved = record

    def _add_message(self, message: Noticed) -> None:
        # Every rank writes it down: the last one counts.
        if message in self.messages:
            self.messages.remove(message)
        self.messages.append(message)

    def _update_host(self, new: HostState) -> None:
        """Keep the newest state of a host; a sample says more than means that are as old."""
        known = self.hosts.get(new.summary.host)
        if known is None or new.sampled or not known.sampled or new.time > known.time + SILENT_SECONDS:
            self.hosts[new.summary.host] = new


def _continuation(last: SessionState, started: Started, silent: float) -> Noticed:
    """What a new session has cost, and who has left or come since the last one."""
    before, now = last.started.hosts, started.hosts
    gone = [host for host in before if host not in now]
    come = [host for host in now if host not in before]
    hosts = "".join(f", {word} {', '.join(names)}" for word, names in (("without", gone), ("with", come)) if names)
    steps = max(last.step - started.step, 0)
    again = f" and {steps:,} step{'s' if steps > 1 else ''} to take again" if steps else ""
    message = f"started again{hosts}, after {elapsed(max(silent, 0.0))} of standstill{again}"
    return Noticed(time=started.time, step=started.step, message=message)
