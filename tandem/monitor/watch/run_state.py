"""The state of a run as its journals show it, updated line by line for `tandem watch`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

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
    RolledBack,
    Sampled,
    Saved,
    Started,
    Surveyed,
)

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


class RunState:
    """What all sessions of a run add up to, and the newest session."""

    def __init__(self) -> None:
        self.sessions = 0
        self.session: SessionState | None = None
        self.losses: deque[tuple[int, float]] = deque(maxlen=RECENT_LOSSES)
        self.evaluations: list[Evaluated] = []
        self.messages: deque[Noticed] = deque(maxlen=RECENT_MESSAGES)
        self.hosts: dict[str, HostState] = {}
        self.last_record_time = 0.0
        self.unreadable = 0
        """How many lines were no records as this version of Tandem knows them."""

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
        if isinstance(record, Started):
            self._start(rank, record)
        elif isinstance(record, Noticed):
            # Some come before the start of the session that they belong to.
            self._add_message(record)
        elif self.session is not None and rank in self.session.starts:
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

    def _start(self, rank: int, started: Started) -> None:
        """Add a process to the session, or open a new one and drop what came after its first step."""
        session = self.session
        if session is None or not session.accepts(rank, started.timestamp):
            self.session = session = SessionState(started, started.step)
            self.sessions += 1
            # The hosts of this session will write again.
            self.hosts.clear()
            self._forget_after(started.step)
        session.starts[rank] = started.timestamp
        if rank == session.reporting_rank:
            session.started = started

    def _forget_after(self, step: int) -> None:
        """Drop the numbers of steps that are taken again."""
        while self.losses and self.losses[-1][0] > step:
            self.losses.pop()
        self.evaluations = [evaluated for evaluated in self.evaluations if evaluated.step <= step]

    def _update(self, session: SessionState, rank: int, record: Record) -> None:
        reports, time = rank == session.reporting_rank, record.timestamp
        if reports and isinstance(record, Progressed | Evaluated | Saved | RolledBack):
            session.newest_kind = record.kind
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
                self.evaluations.append(record)
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
