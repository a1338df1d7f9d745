"""Reads a JoeyNMT run: its validations.txt, and its train.log for what that leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from tandem.reporting.formats.log_format import Candidate, LogFormat
from tandem.reporting.formats.shared import known_schedules
from tandem.reporting.formats.shared.log_contents import LineFacts, LogContents, same_unit
from tandem.reporting.formats.shared.log_lines import NUMBER, append_number, lines_of, log_of, moment, number
from tandem.reporting.formats.shared.log_timing import sessions_by_breaks, stretches_between
from tandem.reporting.formats.shared.program_settings import GRADIENT_BYTES, Settings, texts_in
from tandem.reporting.formats.shared.split_runs import longest_run, step_marks
from tandem.reporting.run_record import RunRecord, Schedule, Team

BLEU_NOTE = "as JoeyNMT computes it on its development text; its signature is not in the file"

_VALIDATION = re.compile(r"^Steps:\s*(\d+)\b")
_TRAINED = re.compile(rf"Step:\s*(\d+),?\s+Batch Loss:\s*({NUMBER})", re.IGNORECASE)
_PROGRESS = re.compile(r"^Steps:\s*(\d+)\b|(?i:Step:\s*(\d+),?\s+Batch Loss:)")
_PAIR = re.compile(rf"(\w+):\s*({NUMBER})", re.IGNORECASE)
_RATE = re.compile(rf"\bLr:\s*({NUMBER})", re.IGNORECASE)
_RESULT = re.compile(r"(?:Validation|Evaluation) result(?: \(\w+\))?(?: at epoch\s+\d+, step\s+(\d+))?")
_SETTING = re.compile(r"\bcfg\.([\w.]+)\s*:\s*(.*\S)")
_FACTS = {
    "parameters": re.compile(r"Total params:\s*([\d,]+)"),
    "signature": re.compile(r"nrefs:\d+\|\S+\|version:[\w.]+"),
}
_BEGINS = re.compile(r"\bcfg\.[\w.]+\s*:|Hello! This is Joey-?NMT")
# A validations.txt begins with an evaluation.
_FIRST_LINES = 20


@dataclass
class _Contents(LogContents):
    """What was read of JoeyNMT's files so far."""

    evaluations: dict[float, dict[str, float]] = field(default_factory=dict)
    """Values by step and name."""
    facts: LineFacts = field(default_factory=lambda: LineFacts(_FACTS))
    step: float | None = None

    def look_at_validation(self, step: float, rest: str) -> None:
        values = _pairs(rest)
        if "lr" in values:
            self.learning_rate.append((step, values["lr"]))
        self.evaluations.setdefault(step, {}).update(values)

    def look_at_log(self, line: str) -> None:
        if trained := _TRAINED.search(line):
            self.end.go_on()
            self.step = float(trained[1])
            append_number(self.train_loss, self.step, trained)
            append_number(self.learning_rate, self.step, _RATE.search(line))
            if (when := moment(line)) is not None:
                self.moments.append((self.step, when))
        elif (result := _RESULT.search(line)) and (result[1] or self.step is not None) and not self.end.finished:
            step = float(result[1] or self.step or 0.0)
            self.evaluations.setdefault(step, {}).update(_pairs(line[result.end() :]))
        elif setting := _SETTING.search(line):
            self.settings[setting[1]] = setting[2]
        else:
            self.facts.look_at(line)
            self.end.look_at(line, last_words="Training ended")


def read_joeynmt(path: Path, training_log: Path | None = None) -> RunRecord:
    """A validations.txt or a train.log, or the one completed by the other.

    Both are appended to if a run is made again: the longest run is read, and of the log the one that fits it.
    """
    found = _Contents()
    chosen = longest_run(step_marks(path, _PROGRESS), _BEGINS, path)
    sources = [(path, chosen)]
    if training_log is not None:
        marks = step_marks(training_log, _PROGRESS)
        sources.insert(0, (training_log, longest_run(marks, _BEGINS, training_log, like=chosen)))
    for source, run in sources:
        for line in run.lines_of(source):
            if step := _VALIDATION.match(line):
                found.look_at_validation(float(step[1]), line[step.end() :])
            else:
                found.look_at_log(line)
    found.problems += dict.fromkeys(problem for _, run in sources for problem in run.problems)
    return _record(found, path)


def _pairs(text: str) -> dict[str, float]:
    read = ((name.lower(), number(value)) for name, value in _PAIR.findall(text))
    return {name: value for name, value in read if value is not None}


def _record(found: _Contents, path: Path) -> RunRecord:
    evaluations = sorted(found.evaluations.items())
    found.evaluated = set(found.evaluations)
    found.bleu = [(step, values["bleu"]) for step, values in evaluations if "bleu" in values]
    # The loss is a sum over the text in older versions and per token in newer ones; perplexity is per token in all.
    found.eval_loss = [(step, log_of(values["ppl"])) for step, values in evaluations if "ppl" in values] or [
        (step, values["loss"]) for step, values in evaluations if "loss" in values
    ]
    if not same_unit(found.train_loss, found.eval_loss):
        found.train_loss = []
        found.problems.append(
            "The training loss of the log is not per token like the evaluation's, so it was left out."
        )
    found.stretches = stretches_between(found.moments, sessions_by_breaks(found.moments))
    signature, parameters = found.facts.last("signature"), found.facts.count("parameters")
    settings = found.settings
    half = settings.get("training.fp16", settings.get("fp16"))
    languages = [settings.get(f"data.{side}.lang", settings.get(f"data.{side}")) for side in ("src", "trg")]
    state, failure = found.end.state(remedy="make training.batch_size smaller")
    return replace(
        found.record("JoeyNMT run", path, f"sacreBLEU {signature}" if signature else BLEU_NOTE),
        state=state,
        failure=failure,
        max_steps=settings.number("training.updates"),
        team=Team(
            parameters=parameters,
            gradient_bytes_per_value=GRADIENT_BYTES["float32"] if parameters is not None else None,
            precision=None if half is None else ("mixed" if half == "True" else "float32"),
        ),
        schedule=_schedule(settings),
        texts=texts_in(languages),
    )


def _schedule(settings: Settings) -> Schedule | None:
    peak = settings.number("training.learning_rate")
    policy = settings.get("training.scheduling", "None")
    if peak is None or policy in ("None", ""):
        return None if peak is None else known_schedules.constant(peak)
    names = ("learning_rate", "learning_rate_warmup", "learning_rate_factor", "patience", "decrease_factor")
    known = settings.only(*(f"training.{name}" for name in names))
    return known_schedules.by_name(policy, {name.removeprefix("training."): value for name, value in known.items()})


def _group(files: Sequence[Path], top: Path) -> Iterator[Candidate]:
    """The two files of a run lie in one directory; a log without validations is a run by itself."""
    validations = [path for path in files if any(map(_VALIDATION.match, islice(lines_of(path), _FIRST_LINES)))]
    logs = {path.parent: path for path in files if path not in validations}
    for path in validations:
        yield Candidate(path, [path], partial(read_joeynmt, path, logs.get(path.parent)))
    completed = {path.parent for path in validations}
    for path in files:
        if path not in validations and path.parent not in completed:
            yield Candidate(path, [path], partial(read_joeynmt, path))


FORMAT = LogFormat(
    title="a JoeyNMT validations.txt or train.log",
    read=read_joeynmt,
    lines={
        "Steps:": r"^Steps:\s*\d+\s+\w+:",
        "Step:": r"\bStep:\s*\d+,?\s+Batch Loss:",
        " result (": r"(?:Validation|Evaluation) result \((?:greedy|beam)",
        "Joey": r"Joey-?NMT",
    },
    group=_group,
)
