"""Reads the console log of an OpenSeq2Seq run, in which the lines of several ranks interleave."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tandem.report.record import Curve, RunRecord, Session, State, Team
from tandem.report.sources.apart import others_left_out
from tandem.report.sources.curves import Points, Stretch, repeated, training_only, usual_spacing
from tandem.report.sources.launch import LaunchTrouble
from tandem.report.sources.lines import NUMBER, count, ended_by, lines_of, moment, number
from tandem.report.sources.openseq2seq_settings import Settings

BLEU_NOTE = (
    "on subword pieces, from 0 to 1 in the log (here times 100): not comparable with sacreBLEU, which is much lower; "
    "the evaluation at step 0, which scores a copy of the reference, is left out"
)

_STEP = re.compile(r"[Gg]lobal step (\d+):")
_TRAIN_LOSS = re.compile(rf"(?:Train loss:|\bloss =)\s*({NUMBER})", re.IGNORECASE)
_STEP_TIME = re.compile(r"time per step = (\d+):(\d+):(\d+\.?\d*)")
_EVAL_LOSS = re.compile(rf"Validation loss:\s*({NUMBER})", re.IGNORECASE)
_BLEU = re.compile(rf"Eval BL(?:UE|EU) score:\s*({NUMBER})", re.IGNORECASE)
_FROM_SCRATCH = "Starting training from scratch"
_RESTORED = re.compile(r"Restored checkpoint from \S*?(?:-(\d+))?\.?(?:\s|$)")
_RANK = re.compile(r"Building graph in Horovod rank: (\d+)|NCCL INFO rank (\d+) nranks")
_HOST = re.compile(r"^\[([A-Za-z][\w.-]*):\d+\]|^\s*Host: (\S+)|^(\S+?):\d+:\d+ \[\d+\] NCCL INFO")
_DEVICE = re.compile(r"^name: (.+?) major:")
_PARAMETERS = re.compile(r"Total trainable parameters: (\d+)")
_AVERAGE_TIME = re.compile(r"Avg time per step: ([\d.]+)s")
_AVERAGE_OBJECTS = re.compile(r"Avg objects per second: ([\d.]+)")
_OUT_OF_MEMORY = re.compile(r"Ran out of GPU memory|ResourceExhaustedError|OOM when allocating")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt))\b(?:: (.*))?")
# The dictionary of settings has some 60 lines; where its end is lost among other lines, the search for it ends here.
_LONGEST_SETTINGS = 400
_LONGEST_QUOTE = 160
_SAMPLE = re.compile(r"\*\*\*\s+(?:\*{5}EVAL|Train (?:Source|Target|Prediction))")
# A moment stands at the start of a line, behind a few marks at most.
_MOMENT_WITHIN = 60
_SECONDS_OF = (3600.0, 60.0, 1.0)


@dataclass
class _Start:
    """One start of the program, as it is read."""

    begins_at: float | None = None
    first: float | None = None
    last: float = 0.0
    first_time: float | None = None
    """The first `time per step`, which is the time since the start of the program."""
    began: float | None = None
    spoke: float | None = None
    """The last moment that a line names."""


@dataclass
class _Attempt:
    """A start from scratch and all that continue it."""

    starts: list[_Start] = field(default_factory=lambda: [_Start()])
    begun: bool = False
    train_loss: Points = field(default_factory=list)
    eval_loss: Points = field(default_factory=list)
    bleu: Points = field(default_factory=list)
    times: Points = field(default_factory=list)
    dumped: list[str] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    placed: set[int] = field(default_factory=set)
    """Ranks whose host is named."""
    device: str | None = None
    parameters: int | None = None
    average_time: float | None = None
    average_objects: float | None = None
    finished: bool = False
    out_of_memory: bool = False
    exception: tuple[str, str] | None = None
    trouble: LaunchTrouble = field(default_factory=LaunchTrouble)

    @property
    def points(self) -> int:
        return len(self.train_loss) + len(self.eval_loss)

    @property
    def last_step(self) -> float:
        return max(start.last for start in self.starts)


class _Reader:
    """Takes a log line by line."""

    def __init__(self) -> None:
        self.attempts = [_Attempt()]
        self._step: float | None = None
        self._loss_due = self._time_due = False
        self._settings_due = 0

    @property
    def _now(self) -> _Attempt:
        return self.attempts[-1]

    @property
    def _start(self) -> _Start:
        return self._now.starts[-1]

    def look_at(self, line: str) -> None:
        if _SAMPLE.match(line):
            return
        if _FROM_SCRATCH in line:
            self._begin(0.0, continues=False)
        elif restored := _RESTORED.search(line):
            self._begin(float(restored[1]) if restored[1] else None, continues=True)
        if (when := moment(line[:_MOMENT_WITHIN])) is not None:
            self._start.began = when if self._start.began is None else self._start.began
            self._start.spoke = when
        self._look_for_settings(line)
        self._look_for_training(line)
        self._look_for_evaluation(line)
        self._look_for_team(line)
        self._look_for_ends(line)

    def _begin(self, step: float | None, *, continues: bool) -> None:
        """A start. What mpirun said before the first one belongs to it; two in a row are two ranks' word for one."""
        if self._now.begun and (self._now.dumped or self._now.points):
            if continues:
                self._now.starts.append(_Start())
            else:
                self.attempts.append(_Attempt())
        self._now.begun = True
        self._now.finished = False
        self._start.begins_at = self._step = step

    def _look_for_settings(self, line: str) -> None:
        if "*** Training config:" in line:
            self._settings_due = _LONGEST_SETTINGS
            self._now.dumped.clear()
        elif line.startswith("*** "):
            self._settings_due = 0
        elif self._settings_due:
            self._settings_due -= 1
            self._now.dumped.append(line)

    def _look_for_training(self, line: str) -> None:
        now, start = self._now, self._start
        if found := _STEP.search(line):
            self._step = start.last = float(found[1])
            start.first = self._step if start.first is None else start.first
            self._loss_due = self._time_due = True
            # It goes on, so whatever was said before did not end it.
            now.out_of_memory, now.exception, now.trouble = False, None, LaunchTrouble()
        if self._step is None:
            return
        if self._loss_due and (found := _TRAIN_LOSS.search(line)):
            self._loss_due = False
            _note(now.train_loss, self._step, found[1])
        if self._time_due and (found := _STEP_TIME.search(line)):
            self._time_due = False
            seconds = sum(float(part) * unit for part, unit in zip(found.groups(), _SECONDS_OF, strict=True))
            if start.first_time is None:
                start.first_time = seconds
            else:
                now.times.append((self._step, seconds))

    def _look_for_evaluation(self, line: str) -> None:
        if self._step is None or self._step == 0:
            return
        if found := _EVAL_LOSS.search(line):
            _note(self._now.eval_loss, self._step, found[1])
        if found := _BLEU.search(line):
            _note(self._now.bleu, self._step, found[1], scale=100.0)

    def _look_for_team(self, line: str) -> None:
        now = self._now
        if (found := _RANK.search(line)) and (rank := count(found[1] or found[2])) is not None:
            now.ranks.add(rank)
            now.placed.update([rank] if _HOST.match(line) else [])
        if found := _HOST.match(line):
            now.hosts.add(found[1] or found[2] or found[3])
        if found := _DEVICE.match(line):
            now.device = found[1]
        if found := _PARAMETERS.search(line):
            now.parameters = count(found[1])
        if found := _AVERAGE_TIME.search(line):
            now.average_time = float(found[1])
        if found := _AVERAGE_OBJECTS.search(line):
            now.average_objects = float(found[1])

    def _look_for_ends(self, line: str) -> None:
        now = self._now
        now.finished = now.finished or "*** Finished training" in line
        now.out_of_memory = now.out_of_memory or _OUT_OF_MEMORY.search(line) is not None
        now.trouble.look_at(line)
        if (found := _EXCEPTION.match(line)) and now.exception is None:
            now.exception = (found[1], (found[2] or "").strip()[:_LONGEST_QUOTE])


def _note(points: Points, step: float, text: str, scale: float = 1.0) -> None:
    if (value := number(text)) is not None:
        points.append((step, value * scale))


def read_openseq2seq(path: Path) -> RunRecord:
    """What the log tells of its run; of several runs in one log, the one with the most lines of progress."""
    reader = _Reader()
    for line in lines_of(path):
        reader.look_at(line)
    best = max(reversed(reader.attempts), key=lambda attempt: attempt.points)
    settings = Settings("\n".join(best.dumped))
    train_loss = Curve.of(best.train_loss)
    every = settings.amount("print_loss_steps") or usual_spacing(train_loss)
    stretches = [Stretch(step - (every or 0.0), step, seconds) for step, seconds in best.times]
    step_seconds, seconds = training_only(stretches, [step for step, _ in best.eval_loss])
    state, failure = _end_of(best, settings)
    sessions = _sessions(best, every, state)
    return RunRecord(
        source="OpenSeq2Seq log",
        path=str(path),
        state=state,
        failure=failure,
        problems=_others(reader.attempts, best),
        sessions=sessions,
        repeated_steps=repeated(sessions),
        max_steps=settings.amount("max_steps"),
        train_loss=train_loss,
        eval_loss=Curve.of(best.eval_loss),
        bleu=Curve.of(best.bleu),
        bleu_note=BLEU_NOTE if best.bleu else None,
        step_seconds=step_seconds,
        steps_per_point=every,
        seconds=seconds,
        team=_team(best, settings),
        schedule=settings.schedule,
        texts=settings.texts,
    )


def _team(attempt: _Attempt, settings: Settings) -> Team:
    towers = None if settings.uses_horovod else count(settings.value("num_gpus") or "")
    ranks = max(attempt.ranks) + 1 if attempt.ranks else towers
    tokens = None
    if attempt.average_time is not None and attempt.average_objects is not None:
        # Objects are source and target tokens of all ranks.
        tokens = attempt.average_time * attempt.average_objects
    return Team(
        ranks=ranks,
        hosts=_hosts(attempt, ranks),
        parameters=attempt.parameters,
        gradient_bytes_per_value=settings.gradient_bytes,
        exchange="allreduce" if attempt.ranks and ranks is not None and ranks > 1 else None,
        device=attempt.device,
        precision=settings.precision,
        tokens_per_step=tokens,
        most_positions_per_rank=settings.most_positions,
    )


def _hosts(attempt: _Attempt, ranks: int | None) -> int | None:
    """How many there are. One name is no proof that there is no other: mpirun speaks of the host it runs on."""
    if len(attempt.hosts) > 1:
        return len(attempt.hosts)
    one_process = not attempt.ranks and ranks is not None
    all_seen = ranks is not None and attempt.placed.issuperset(range(ranks))
    return 1 if attempt.hosts and (ranks == 1 or one_process or all_seen) else None


def _end_of(attempt: _Attempt, settings: Settings) -> tuple[State, str | None]:
    if attempt.finished:
        return "finished", None
    if attempt.out_of_memory:
        batch = settings.value("batch_size_per_gpu")
        given = "" if batch is None else f" (it was {batch})"
        mixed = "" if settings.precision == "mixed" else ", or set dtype to 'mixed'"
        return "crashed", f"it ran out of device memory: make batch_size_per_gpu smaller{given}{mixed}"
    if attempt.exception is not None and attempt.exception[0] == "KeyboardInterrupt":
        return "stopped", None
    if attempt.exception is not None:
        name, words = attempt.exception
        return "crashed", ended_by(name, words)
    if attempt.trouble.ended_by_fault:
        return "crashed", f"it was ended by a fault: {attempt.trouble.reasons}"
    return "unknown", None


def _sessions(attempt: _Attempt, every: float | None, state: State) -> tuple[Session, ...]:
    """One for each start. A log names moments as the program begins and as it breaks, but not as it ends well."""
    sessions = []
    for start in attempt.starts:
        first = start.first if start.begins_at is None else start.begins_at
        last_one = start is attempt.starts[-1]
        sessions.append(
            Session(
                first_step=first or 0.0,
                last_step=max(start.last, first or 0.0),
                started=start.began,
                ended=start.spoke if last_one and state == "crashed" else None,
                reason="finished" if last_one and state == "finished" else None,
                startup_seconds=None if start.first_time is None or every is None else start.first_time * every,
            )
        )
    return tuple(sessions)


def _others(attempts: list[_Attempt], best: _Attempt) -> tuple[str, ...]:
    return others_left_out(best.last_step, [other.last_step for other in attempts if other is not best])
