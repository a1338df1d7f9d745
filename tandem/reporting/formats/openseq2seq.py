"""Reads the console log of an OpenSeq2Seq run, in which the lines of several ranks interleave."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem.monitor.records import FINISHED
from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.mpirun import LaunchTrouble
from tandem.reporting.formats.shared import known_schedules
from tandem.reporting.formats.shared.log_contents import LineFacts, LogContents
from tandem.reporting.formats.shared.log_lines import NUMBER, append_number, lines_of, moment, number
from tandem.reporting.formats.shared.log_timing import Points, ProgramStart, Stretch, usual_spacing
from tandem.reporting.formats.shared.program_settings import GRADIENT_BYTES, Settings, texts_of_files
from tandem.reporting.formats.shared.split_runs import others_left_out
from tandem.reporting.run_record import Curve, RunRecord, Schedule, State, Team, TrainingSession

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
_RANK = r"(?:Building graph in Horovod rank: (\d+)|NCCL INFO rank (\d+) nranks)"
_HOST = r"^(?:\[([A-Za-z][\w.-]*):\d+\]|\s*Host: (\S+)|(\S+?):\d+:\d+ \[\d+\] NCCL INFO)"
_FACTS = {
    "rank": re.compile(_RANK),
    "host": re.compile(_HOST),
    # A rank whose host is named.
    "placed": re.compile(f"(?={_HOST}).*?{_RANK}"),
    "device": re.compile(r"^name: (.+?) major:"),
    "parameters": re.compile(r"Total trainable parameters: (\d+)"),
    "average_time": re.compile(r"Avg time per step: ([\d.]+)s"),
    "average_objects": re.compile(r"Avg objects per second: ([\d.]+)"),
}
# An entry of the printed dictionary, which is searched and not parsed: lines of other ranks may stand in it.
_SETTING = re.compile(r"'(\w+)': (?=(?:'([^']*)'|([^,}\]\n]+)))")
# The dictionary of settings has some 60 lines; where its end is lost among other lines, the search for it ends here.
_LONGEST_SETTINGS = 400
_SAMPLE = re.compile(r"\*\*\*\s+(?:\*{5}EVAL|Train (?:Source|Target|Prediction))")
# A moment stands at the start of a line, behind a few marks at most.
_MOMENT_WITHIN = 60
_SECONDS_OF = (3600.0, 60.0, 1.0)


@dataclass
class _Start(ProgramStart):
    """One start of the program, as it is read."""

    begins_at: float | None = None
    first_time: float | None = None
    """The first `time per step`, which is the time since the start of the program."""


@dataclass
class _Attempt(LogContents):
    """A start from scratch and all that continue it, read line by line."""

    starts: list[_Start] = field(default_factory=lambda: [_Start()])
    begun: bool = False
    step: float | None = None
    loss_due: bool = False
    time_due: bool = False
    settings_due: int = 0
    """Lines that may still belong to the settings."""
    times: Points = field(default_factory=list)
    dumped: list[str] = field(default_factory=list)
    """The lines of the settings."""
    facts: LineFacts = field(default_factory=lambda: LineFacts(_FACTS))
    trouble: LaunchTrouble = field(default_factory=LaunchTrouble)

    @property
    def has_content(self) -> bool:
        """Whether anything came after its start: several ranks may report the same start."""
        return self.begun and bool(self.dumped or self.points)

    @property
    def points(self) -> int:
        return len(self.train_loss) + len(self.eval_loss)

    @property
    def last_step(self) -> float:
        return max(start.last for start in self.starts)

    def look_at(self, line: str) -> None:
        restored = _RESTORED.search(line)
        if restored and self.has_content:
            self.starts.append(_Start())
        if restored or _FROM_SCRATCH in line:
            self.begun, self.end.finished = True, False
            self.step = 0.0 if restored is None else number(restored[1] or "")
            self.starts[-1].begins_at = self.step
        self.starts[-1].speak(moment(line[:_MOMENT_WITHIN]))
        self._look_for_settings(line)
        self._look_for_training(line)
        if self.step:
            append_number(self.eval_loss, self.step, _EVAL_LOSS.search(line))
            append_number(self.bleu, self.step, _BLEU.search(line))
        self.facts.look_at(line)
        self.trouble.look_at(line)
        self.end.look_at(line, last_words="*** Finished training")

    def _look_for_settings(self, line: str) -> None:
        if "*** Training config:" in line:
            self.settings_due = _LONGEST_SETTINGS
            self.dumped.clear()
        elif line.startswith("*** "):
            self.settings_due = 0
        elif self.settings_due:
            self.settings_due -= 1
            self.dumped.append(line)

    def _look_for_training(self, line: str) -> None:
        start = self.starts[-1]
        if found := _STEP.search(line):
            self.step = float(found[1])
            start.reach(self.step)
            self.loss_due = self.time_due = True
            # The run goes on, so no earlier fault has ended it.
            self.end.go_on()
            self.trouble = LaunchTrouble()
        if self.step is None:
            return
        if self.loss_due and (found := _TRAIN_LOSS.search(line)):
            self.loss_due = False
            append_number(self.train_loss, self.step, found)
        if self.time_due and (found := _STEP_TIME.search(line)):
            self.time_due = False
            seconds = sum(float(part) * unit for part, unit in zip(found.groups(), _SECONDS_OF, strict=True))
            if start.first_time is None:
                start.first_time = seconds
            else:
                self.times.append((self.step, seconds))


def read_openseq2seq(path: Path) -> RunRecord:
    """The run of a log; the one with the most lines of progress if there are several."""
    attempts = [_Attempt()]
    for line in lines_of(path):
        if _SAMPLE.match(line):
            continue
        # Lines of mpirun before the first start belong to it.
        if _FROM_SCRATCH in line and attempts[-1].has_content:
            attempts.append(_Attempt())
        attempts[-1].look_at(line)
    best = max(reversed(attempts), key=lambda attempt: attempt.points)
    best.problems += others_left_out(best.last_step, [other.last_step for other in attempts if other is not best])
    dumped = "\n".join(best.dumped)
    # Where a name occurs twice the first counts.
    settings = Settings({name: (text or bare).strip() for name, text, bare in reversed(_SETTING.findall(dumped))})
    every = settings.number("print_loss_steps") or usual_spacing(Curve.of(best.train_loss))
    best.stretches = [Stretch(step - (every or 0.0), step, seconds) for step, seconds in best.times]
    best.evaluated = {step for step, _ in best.eval_loss}
    # Always from 0 to 1, so that the scale need not be guessed.
    bleu, best.bleu = Curve.of(best.bleu).scaled(100), []
    state, failure = _end_of(best, settings)
    files = list(settings.only("source_file", "target_file").values())
    return replace(
        best.record("OpenSeq2Seq log", path, "", _sessions(best, every, state)),
        state=state,
        failure=failure,
        max_steps=settings.number("max_steps"),
        bleu=bleu,
        bleu_note=BLEU_NOTE if len(bleu) else None,
        steps_per_point=every,
        team=_team(best.facts, settings),
        schedule=_schedule(dumped),
        texts=texts_of_files(files) if len(files) > 1 else (),
    )


def _precision(settings: Settings) -> str | None:
    """`mixed`, `float32` or `float16`, in whatever way it was given."""
    found = re.search(r"mixed|float\d+", settings.get("dtype", ""))
    return None if found is None else found[0]


def _team(facts: LineFacts, settings: Settings) -> Team:
    processes = [int(rank) for rank in facts.all("rank")]
    towers = None if settings.get("use_horovod") == "True" else settings.count("num_gpus")
    ranks = max(processes) + 1 if processes else towers
    hosts: int | None = len(facts.all("host"))
    if hosts == 1:
        # One name does not prove that there is no other host: mpirun names only the one it runs on.
        placed = {int(rank) for rank in facts.all("placed")}
        all_seen = ranks is not None and (ranks == 1 or not processes or placed.issuperset(range(ranks)))
        hosts = 1 if all_seen else None
    sentences, longest = settings.number("batch_size_per_gpu"), settings.number("max_length")
    time, objects = (number(facts.last(name) or "") for name in ("average_time", "average_objects"))
    return Team(
        ranks=ranks,
        hosts=hosts or None,
        parameters=facts.count("parameters"),
        gradient_bytes_per_value=GRADIENT_BYTES.get(_precision(settings) or ""),
        exchange="allreduce" if processes and ranks is not None and ranks > 1 else None,
        device=facts.last("device"),
        precision=_precision(settings),
        # Objects are source and target tokens of all ranks.
        tokens_per_step=None if time is None or objects is None else time * objects,
        most_positions_per_rank=None if sentences is None or longest is None else sentences * longest,
    )


def _end_of(attempt: _Attempt, settings: Settings) -> tuple[State, str | None]:
    batch = settings.get("batch_size_per_gpu")
    given = "" if batch is None else f" (it was {batch})"
    mixed = "" if _precision(settings) == "mixed" else ", or set dtype to 'mixed'"
    state, failure = attempt.end.state(remedy=f"make batch_size_per_gpu smaller{given}{mixed}")
    if state == "unknown" and attempt.trouble.ended_by_fault:
        return "crashed", f"it was ended by a fault: {attempt.trouble.reasons}"
    return state, failure


def _sessions(attempt: _Attempt, every: float | None, state: State) -> tuple[TrainingSession, ...]:
    """One session for each start. The log has moments of the start and of a crash, but not of a planned end."""
    sessions = []
    for start in attempt.starts:
        first = (start.first if start.begins_at is None else start.begins_at) or 0.0
        last_one = start is attempt.starts[-1]
        sessions.append(
            TrainingSession(
                first_step=first,
                last_step=max(start.last, first),
                started=start.began,
                ended=start.spoke if last_one and state == "crashed" else None,
                reason=FINISHED if last_one and state == "finished" else None,
                startup_seconds=None if start.first_time is None or every is None else start.first_time * every,
            )
        )
    return tuple(sessions)


def _schedule(dumped: str) -> Schedule | None:
    policy = re.search(r"'lr_policy': <function (\w+)", dumped)
    if policy is None:
        return None
    block = re.search(r"'lr_policy_params': \{(.*?)\}", dumped, re.DOTALL)
    pairs = re.findall(r"'(\w+)': ([^,}]+)", "" if block is None else block[1])
    settings = Settings({name: value.strip() for name, value in pairs})
    amounts = {name: settings.number(name) for name in settings}
    known = {name: amount for name, amount in amounts.items() if amount is not None and amount > 0}
    if policy[1] == "transformer_policy" and {"learning_rate", "d_model", "warmup_steps"} <= known.keys():
        return known_schedules.noam(
            factor=known["learning_rate"] * known.get("coefficient", 1.0),
            width=known["d_model"],
            warmup=known["warmup_steps"],
            highest=known.get("max_lr", math.inf),
        )
    if policy[1] == "fixed_lr" and "learning_rate" in known:
        return known_schedules.constant(known["learning_rate"])
    return known_schedules.by_name(policy[1], settings)


FORMAT = LogFormat(
    title="an OpenSeq2Seq log",
    read=read_openseq2seq,
    lines={
        "*** ": r"\*\*\* (?:Global step|Epoch \d+, global step|Training config|Building graph|Total trainable|"
        r"Starting training|Restored checkpoint|Running evaluation|Finished training)",
        "time per step": r"^time per step = \d",
    },
)
