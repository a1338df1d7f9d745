"""What the records of a run, read in the order they came, add up to for somebody who watches it."""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import Any

from tandem.monitor.records import (
    Ended,
    Evaluated,
    HostSummary,
    Noticed,
    Planned,
    Progressed,
    Record,
    Sampled,
    Saved,
    Started,
    Surveyed,
)
from tandem.monitor.sampler import summarise
from tandem.monitor.watch_read import read_line

# As many as the widest picture has room for.
RECENT_LOSSES = 200
RECENT_NOTES = 20
# All processes of a session begin together: one that begins later than this belongs to the next session.
TOGETHER_SECONDS = 60.0
# A host is sampled every second: this many missed are no hiccup.
SILENT_SECONDS = 15.0
# Where nothing is sampled, the next log line is awaited for this many times what the last stretch took...
SILENT_STRETCHES = 3.0
# ...and an evaluation or a start, which may take longer than any stretch, for at least this long.
SILENT_AT_LEAST = 60.0


@dataclass(frozen=True)
class Note:
    """Something worth reading, and when it was written."""

    time: float
    step: int
    text: str


@dataclass(frozen=True)
class HostState:
    """The latest that is known of a host; sampled in a second, or else the means between two surveys."""

    time: float
    summary: HostSummary
    sampled: bool


@dataclass
class Session:
    """The processes that work together from a start to an end, as far as their journals are here."""

    began: float
    started: Started
    step: int
    starts: dict[int, float] = dataclasses.field(default_factory=dict)
    """When each of its ranks began, by the clock of that rank's host."""
    progressed: Progressed | None = None
    progressed_at: float = 0.0
    sampled: bool = False
    saved: Saved | None = None
    newest: str = ""
    """The kind of the newest record of the rank that tells the story."""
    endings: dict[int, Ended] = dataclasses.field(default_factory=dict)
    ended_at: float = 0.0

    @property
    def teller(self) -> int | None:
        """The rank whose records are taken where all ranks write the same."""
        return min(self.starts, default=None)

    @property
    def ended(self) -> Ended | None:
        """The end of the session; what the lowest rank says of it counts."""
        return self.endings[min(self.endings)] if self.endings else None

    def accepts(self, rank: int, time: float) -> bool:
        """Whether a process that starts now is one of this session's."""
        return rank not in self.starts and not self.endings and time - self.began < TOGETHER_SECONDS


class RunState:
    """All that is known of a run: what it has become over its sessions, and the newest session."""

    def __init__(self) -> None:
        self.sessions = 0
        self.session: Session | None = None
        self.losses: deque[tuple[int, float]] = deque(maxlen=RECENT_LOSSES)
        self.evaluations: list[Evaluated] = []
        self.notes: deque[Note] = deque(maxlen=RECENT_NOTES)
        self.hosts: dict[str, HostState] = {}
        self.heard = 0.0
        """When the newest record was written."""
        self.strange = 0
        """How many lines were no records as this version of Tandem knows them."""

    def take(self, rank: int, line: dict[str, Any]) -> None:
        """Take in a line of a rank's journal; what another version of Tandem wrote differently is passed over."""
        read = read_line(line)
        if read is None:
            self.strange += 1
            return
        time, record = read
        self.heard = max(self.heard, time)
        if isinstance(record, Started):
            self._start(rank, record, time)
        elif isinstance(record, Noticed):
            # Some come before the start of the session that they belong to.
            self._note(time, record.step, record.message)
        elif self.session is not None and rank in self.session.starts:
            self._tell(self.session, rank, record, time)

    def evaluating(self, every: int | None) -> bool:
        """Whether the steps are waiting for an evaluation, which is due every so many of them, where that is known.

        Only its end is recorded: until then, the newest record is that of a stretch of steps in which it fell due.
        """
        session = self.session
        if session is None or session.progressed is None or session.newest != Progressed.kind:
            return False
        last = session.progressed.step
        before = last - session.progressed.steps
        # Without the settings: the first evaluation of a run comes after as many steps as every other one.
        every = every or min((one.step for one in self.evaluations if one.step), default=None)
        due = last == session.progressed.max_steps or (every is not None and last // every > before // every)
        return due and not any(before < evaluated.step <= last for evaluated in self.evaluations)

    def silent_seconds(self, now: float) -> float | None:
        """For how long there has been no sign of life, where that is too long."""
        session = self.session
        if session is None or session.ended is not None:
            return None
        patience = SILENT_SECONDS if session.sampled else SILENT_AT_LEAST
        if session.progressed is not None and not session.sampled:
            stretch = sum(session.progressed.seconds.values())
            patience = max(patience, SILENT_STRETCHES * stretch)
        quiet = now - self.heard
        return quiet if quiet > patience else None

    def _start(self, rank: int, started: Started, time: float) -> None:
        """Take a process into the session, or open a new one; what came after its first step is done again."""
        session = self.session
        if session is None or not session.accepts(rank, time):
            self.session = session = Session(began=time, started=started, step=started.step)
            self.sessions += 1
            # Whoever is in this session will be heard of again.
            self.hosts.clear()
            while self.losses and self.losses[-1][0] > started.step:
                self.losses.pop()
            self.evaluations = [evaluated for evaluated in self.evaluations if evaluated.step <= started.step]
        session.starts[rank] = time
        if rank == session.teller:
            session.started = started

    def _tell(self, session: Session, rank: int, record: Record, time: float) -> None:
        match record:
            # Where only the newest of a kind are told, they are told last: this may be the end of the session before.
            case Sampled() | Surveyed() if time < session.starts[rank]:
                pass
            case Sampled():
                session.sampled = True
                # A sample names the step under way, which has not been taken yet.
                session.step = max(session.step, record.step - 1)
                self._see(HostState(time, summarise([record.use], {}), sampled=True))
            case Surveyed():
                for summary in record.hosts:
                    self._see(HostState(time, summary, sampled=False))
            case Ended():
                session.endings[rank] = record
                session.ended_at = time
            case Planned():
                self._note(time, record.step, f"exchange: {record.reason}")
            case _ if rank == session.teller:
                session.newest = record.kind
                self._go_on(session, record, time)

    def _go_on(self, session: Session, record: Record, time: float) -> None:
        match record:
            case Progressed():
                session.progressed, session.progressed_at = record, time
                session.step = max(session.step, record.step)
                self.losses.append((record.step, record.train_loss))
            case Evaluated():
                self.evaluations.append(record)
            case Saved():
                session.saved = record

    def _note(self, time: float, step: int, text: str) -> None:
        # Every rank writes it down: the last one counts.
        for note in [note for note in self.notes if (note.step, note.text) == (step, text)]:
            self.notes.remove(note)
        self.notes.append(Note(time, step, text))

    def _see(self, seen: HostState) -> None:
        """Keep what is the latest of a host; a second of its own says more than means that are as old."""
        known = self.hosts.get(seen.summary.host)
        if known is None or seen.sampled or not known.sampled or seen.time > known.time + SILENT_SECONDS:
            self.hosts[seen.summary.host] = seen
