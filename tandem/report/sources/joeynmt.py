"""Reads a JoeyNMT run: its validations.txt, and its train.log for what that leaves out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tandem.report.record import Curve, RunRecord, Schedule, State, Team, Text
from tandem.report.sources.apart import Mark, longest_run
from tandem.report.sources.curves import (
    Points,
    Stretch,
    bleu_curve,
    repeated,
    same_unit,
    sessions_by_breaks,
    training_only,
    usual_spacing,
    whole_session,
)
from tandem.report.sources.lines import NUMBER, count, lines_of, log_of, moment, number
from tandem.report.sources.schedules import constant, named

BLEU_NOTE = "as JoeyNMT computes it on its development text; its signature is not in the file"

_VALIDATION = re.compile(r"^Steps:\s*(\d+)\b")
_PAIR = re.compile(rf"(\w+):\s*({NUMBER})", re.IGNORECASE)
_TRAINED = re.compile(rf"Step:\s*(\d+),?\s+Batch Loss:\s*({NUMBER})", re.IGNORECASE)
_RATE = re.compile(rf"\bLr:\s*({NUMBER})", re.IGNORECASE)
_RESULT = re.compile(r"(?:Validation|Evaluation) result(?: \(\w+\))?(?: at epoch\s+\d+, step\s+(\d+))?")
_PARAMETERS = re.compile(r"Total params:\s*([\d,]+)")
_SETTING = re.compile(r"\bcfg\.([\w.]+)\s*:\s*(.*\S)")
_SIGNATURE = re.compile(r"nrefs:\d+\|\S+\|version:[\w.]+")
_ENDED = re.compile(r"Training ended (?:after|since)")
_BEGINS = re.compile(r"\bcfg\.[\w.]+\s*:|Hello! This is Joey-?NMT")
_OUT_OF_MEMORY = re.compile(r"CUDA out of memory|OutOfMemoryError")
_GRADIENT_BYTES = 4


@dataclass
class _Found:
    """What was read so far; evaluations by step and name."""

    evaluations: dict[float, dict[str, float]] = field(default_factory=dict)
    train_loss: Points = field(default_factory=list)
    learning_rate: Points = field(default_factory=list)
    moments: Points = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    signature: str | None = None
    ended: bool = False
    out_of_memory: bool = False
    step: float | None = None


def read_joeynmt(path: Path, training_log: Path | None = None) -> RunRecord:
    """A validations.txt or a train.log, or the one completed by the other.

    Both are appended to if a run is made again: the longest run is read, and of the log the one that fits it.
    """
    found = _Found()
    chosen = longest_run(_marks(path), _BEGINS, path)
    sources = [(path, chosen)]
    if training_log is not None:
        sources.insert(0, (training_log, longest_run(_marks(training_log), _BEGINS, training_log, like=chosen)))
    for source, run in sources:
        for line in run.lines_of(source):
            if step := _VALIDATION.match(line):
                _look_at_validation(found, float(step[1]), line[step.end() :])
            else:
                _look_at_log(found, line)
    return _record(found, path, list(dict.fromkeys(problem for _, run in sources for problem in run.problems)))


def _marks(path: Path) -> list[Mark]:
    """The lines that name a step."""
    found = ((place, _VALIDATION.match(line) or _TRAINED.search(line)) for place, line in enumerate(lines_of(path)))
    return [(place, float(step[1])) for place, step in found if step is not None]


def _pairs(text: str) -> dict[str, float]:
    read = ((name.lower(), number(value)) for name, value in _PAIR.findall(text))
    return {name: value for name, value in read if value is not None}


def _look_at_validation(found: _Found, step: float, rest: str) -> None:
    values = _pairs(rest)
    rate = values.pop("lr", None)
    if rate is not None:
        found.learning_rate.append((step, rate))
    found.evaluations.setdefault(step, {}).update(values)


def _look_at_log(found: _Found, line: str) -> None:
    when = moment(line)
    if trained := _TRAINED.search(line):
        found.step = float(trained[1])
        found.out_of_memory = False
        loss, rate = number(trained[2]), _RATE.search(line)
        if loss is not None:
            found.train_loss.append((found.step, loss))
        if rate is not None and (value := number(rate[1])) is not None:
            found.learning_rate.append((found.step, value))
        if when is not None:
            found.moments.append((found.step, when))
    elif (result := _RESULT.search(line)) and (result[1] or found.step is not None) and not found.ended:
        values = _pairs(line[result.end() :])
        found.evaluations.setdefault(float(result[1] or found.step or 0.0), {}).update(values)
    elif setting := _SETTING.search(line):
        found.settings[setting[1]] = setting[2]
    elif signature := _SIGNATURE.search(line):
        found.signature = f"sacreBLEU {signature[0]}"
    elif parameters := _PARAMETERS.search(line):
        found.parameters = count(parameters[1])
    found.ended = found.ended or _ENDED.search(line) is not None
    found.out_of_memory = found.out_of_memory or _OUT_OF_MEMORY.search(line) is not None


def _record(found: _Found, path: Path, problems: list[str]) -> RunRecord:
    evaluations = sorted(found.evaluations.items())
    # The loss is a sum over the text in older versions and per token in newer ones; perplexity is per token in all.
    eval_loss = Curve.of((step, log_of(values["ppl"])) for step, values in evaluations if "ppl" in values)
    if not len(eval_loss):
        eval_loss = Curve.of((step, values["loss"]) for step, values in evaluations if "loss" in values)
    scored = bleu_curve([(step, values["bleu"]) for step, values in evaluations if "bleu" in values], eval_loss)
    train_loss = Curve.of(found.train_loss)
    problems = [*problems, *scored.problems]
    if not same_unit(train_loss, eval_loss):
        train_loss = Curve.of([])
        problems.append("The training loss of the log is not per token like the evaluation's, so it was left out.")
    learning_rate = Curve.of(found.learning_rate)
    step_seconds, seconds = training_only(_stretches(found), found.evaluations)
    state, failure = _end_of(found)
    sessions = sessions_by_breaks(found.moments) or whole_session(eval_loss, train_loss)
    updates = number(found.settings.get("training.updates", ""))
    note = "; ".join(filter(None, [found.signature or BLEU_NOTE, scored.note])) if len(scored.curve) else None
    return RunRecord(
        source="JoeyNMT run",
        path=str(path),
        state=state,
        failure=failure,
        problems=tuple(problems),
        sessions=sessions,
        repeated_steps=repeated(sessions),
        max_steps=updates,
        train_loss=train_loss,
        eval_loss=eval_loss,
        bleu=scored.curve,
        bleu_note=note,
        learning_rate=learning_rate,
        step_seconds=step_seconds,
        steps_per_point=usual_spacing(step_seconds),
        seconds=seconds,
        team=_team(found),
        schedule=_schedule(found.settings),
        texts=_texts(found.settings),
    )


def _stretches(found: _Found) -> list[Stretch]:
    """Step times from the moments of the lines; a silence between two sessions is no step."""
    breaks = {session.ended for session in sessions_by_breaks(found.moments)}
    pairs = pairwise(found.moments)
    return [
        Stretch(step, later, (until - since) / (later - step))
        for (step, since), (later, until) in pairs
        if later > step and since not in breaks
    ]


def _end_of(found: _Found) -> tuple[State, str | None]:
    if found.ended:
        return "finished", None
    if found.out_of_memory:
        return "crashed", "it ran out of device memory: make training.batch_size smaller"
    return "unknown", None


def _team(found: _Found) -> Team:
    half = found.settings.get("training.fp16", found.settings.get("fp16"))
    return Team(
        parameters=found.parameters,
        gradient_bytes_per_value=_GRADIENT_BYTES if found.parameters is not None else None,
        precision=None if half is None else ("mixed" if half == "True" else "float32"),
    )


def _schedule(settings: dict[str, str]) -> Schedule | None:
    peak = number(settings.get("training.learning_rate", ""))
    policy = settings.get("training.scheduling")
    if peak is None:
        return None
    if policy in (None, "None", ""):
        return constant(peak)
    names = ("learning_rate", "learning_rate_warmup", "learning_rate_factor", "patience", "decrease_factor")
    known = {name: settings[f"training.{name}"] for name in names if f"training.{name}" in settings}
    return named(policy or "", known)


def _texts(settings: dict[str, str]) -> tuple[Text, ...]:
    sides = [settings.get(f"data.{side}.lang", settings.get(f"data.{side}")) for side in ("src", "trg")]
    return tuple(Text(language=side) for side in sides if side is not None) if None not in sides else ()
