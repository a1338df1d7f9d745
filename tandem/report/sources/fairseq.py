"""Reads the training log of a fairseq run: plain, progress bar or JSON, of older and newer versions."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tandem.report.record import Curve, RunRecord, Schedule, State, Team, Text
from tandem.report.sources.apart import Mark, longest_run
from tandem.report.sources.curves import (
    Points,
    Stretch,
    bleu_curve,
    repeated,
    sessions_by_breaks,
    training_only,
    usual_spacing,
    whole_session,
)
from tandem.report.sources.lines import count, ended_by, lines_of, log_of, moment, number
from tandem.report.sources.schedules import inverse_root, named

BLEU_NOTE = "as fairseq computed it during validation (--eval-bleu); its tokenisation is not in the log"

Values = dict[str, float]
Kind = Literal["inner", "epoch", "valid"]

_SUBSET = re.compile(r"valid on '([^']+)' subset")
_EPOCH = re.compile(r"\bepoch (\d+)")
_UPDATES = re.compile(r"epoch.*num_updates['\"]?[=: ]+['\"]?(\d+)")
_PREFIX = re.compile(r"^(?:train|valid)_(?!wall)")
_JSON = re.compile(r"\{.*\}")
# Newer versions nest the settings of a part under its name: 'lr_scheduler': {'_name': 'inverse_sqrt', ...}.
_NESTED = r"(?:\{{[^{{}}]*?['\"]_name['\"]\s*:\s*)?"
_SETTING = r"['\"]?\b{}['\"]?\s*[=:]\s*" + _NESTED + r"(?:\[\s*)?['\"]?([^,'\"\]\){{}}\s]+)"
_BEGINS = re.compile(r"Namespace\(|\| fairseq_cli\.train \| \{")
_PARAMETERS = re.compile(r"num\.(?: shared)? model params: ([\d,]+)")
_PAIRS = re.compile(r" train \w+-\w+ (\d+) examples")
_DEVICES = re.compile(r"training on (\d+) (?:GPUs|devices)")
_DEVICE = re.compile(r"; name = (.+?)\s*$")
_OUT_OF_MEMORY = re.compile(r"CUDA out of memory|OutOfMemoryError|OOM: Ran out of memory")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt))\b(?:: (.*))?")
_LONGEST_QUOTE = 160
_FLOAT32_BYTES = 4
_FLOAT16_BYTES = 2
_SETTINGS = (
    "max_update",
    "max_epoch",
    "lr",
    "lr_scheduler",
    "warmup_updates",
    "warmup_init_lr",
    "fp16",
    "distributed_world_size",
    "source_lang",
    "target_lang",
)


@dataclass(frozen=True)
class _Entry:
    """One line of progress."""

    kind: Kind
    values: Values
    epoch: float | None
    cumulative: bool
    """Whether times count from the start of the run, as in older versions."""
    subset: str = "valid"


@dataclass
class _Found:
    """What was read so far."""

    trained: dict[Kind, list[tuple[float, Values]]] = field(default_factory=lambda: {"inner": [], "epoch": []})
    valid: dict[str, list[tuple[float, Values]]] = field(default_factory=dict)
    by_epoch: bool = False
    updates: float | None = None
    moments: Points = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    previous: tuple[float, float | None] | None = None
    """The step of the last line of progress, and the training seconds until then where they are counted through."""
    settings: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    pairs: int | None = None
    devices: int | None = None
    device: str | None = None
    finished: bool = False
    out_of_memory: bool = False
    exception: tuple[str, str] | None = None


def read_fairseq(path: Path) -> RunRecord:
    """What the log tells of its run; of several runs in one log, the one with the most lines of progress."""
    found = _Found()
    chosen = longest_run(_marks(path), _BEGINS, path)
    for line in chosen.lines_of(path):
        if (entry := _entry(line)) is not None:
            _take(found, entry, moment(line))
        else:
            _look_at_rest(found, line)
    return _record(found, path, chosen.problems)


def _marks(path: Path) -> list[Mark]:
    """The lines of progress and how far they are: in updates, or in epochs where no line counts updates."""
    updates: list[Mark] = []
    epochs: list[Mark] = []
    for place, line in enumerate(lines_of(path)):
        if found := _UPDATES.search(line):
            updates.append((place, float(found[1])))
        elif not updates and (entry := _entry(line)) is not None and entry.epoch is not None and entry.kind != "inner":
            epochs.append((place, entry.epoch))
    return updates or epochs


def _entry(line: str) -> _Entry | None:
    """What a line says of the progress; None if it says nothing of it."""
    if "epoch" not in line:
        return None
    whole = _JSON.search(line)
    if whole is not None:
        return _json_entry(whole[0], line[: whole.start()])
    epoch = _EPOCH.search(line)
    subset = _SUBSET.search(line)
    if epoch is None and subset is None:
        return None
    newer = " | INFO | " in line
    at = None if epoch is None else float(epoch[1])
    if "loss=" in line and subset is None:
        # A part that was cut off, as a progress bar is at the edge of the screen, is no number and drops out.
        values = _numbers([part.rstrip(",]").split("=", 1) for part in line.split() if "=" in part])
        return _Entry("inner", values, at, not newer) if "loss" in values else None
    # The name of a value may have a side before it, as in `valid loss 3.5`.
    fields = [part.split()[-2:] for part in line.split("|")]
    values = _numbers([field for field in fields if len(field) == 2 and field[0] != "epoch"])
    if subset is not None:
        return _Entry("valid", values, at, not newer, subset[1]) if values else None
    return _Entry("epoch", values, at, True) if "loss" in values else None


def _json_entry(text: str, before: str) -> _Entry | None:
    try:
        read = json.loads(text)
    except json.JSONDecodeError:
        return None
    if not isinstance(read, dict) or "epoch" not in read:
        return None
    pairs = [[str(name), str(value)] for name, value in read.items()]
    subset = re.search(r"\| (\w+) \| $", before)
    valid = any(name.startswith("valid_") for name, _ in pairs)
    name = subset[1] if subset is not None and subset[1] not in ("train", "train_inner") else "valid"
    values = _numbers(pairs)
    if "loss" not in values:
        return None
    summary = valid or any(name.startswith("train_") for name, _ in pairs if name != "train_wall")
    kind: Kind = "valid" if valid else ("epoch" if summary or "update" not in read else "inner")
    return _Entry(kind, values, number(str(read["epoch"])), " | INFO | " not in before, name)


def _numbers(pairs: list[list[str]]) -> Values:
    """Values by name, without the prefix that tells training and validation apart."""
    read = ((_PREFIX.sub("", name), number(value)) for name, value in pairs)
    return {name: value for name, value in read if value is not None}


def _take(found: _Found, entry: _Entry, when: float | None) -> None:
    found.out_of_memory, found.exception = False, None
    if "num_updates" in entry.values:
        found.updates = entry.values["num_updates"]
    at = found.updates
    if at is None:
        if entry.epoch is None or entry.kind == "inner":
            return
        found.by_epoch, at = True, entry.epoch
    if entry.kind == "valid":
        found.valid.setdefault(entry.subset, []).append((at, entry.values))
    else:
        found.trained[entry.kind].append((at, entry.values))
        if not found.by_epoch and entry.kind == "inner":
            _take_time(found, at, entry)
    if when is not None:
        found.moments.append((at, when))


def _take_time(found: _Found, step: float, entry: _Entry) -> None:
    """Older versions count the training seconds through; newer ones give the speed since the last line."""
    values = entry.values
    through = values.get("train_wall") if entry.cumulative else None
    if found.previous is not None and step > found.previous[0]:
        before, seconds = found.previous
        if through is not None and seconds is not None and through > seconds:
            found.stretches.append(Stretch(before, step, (through - seconds) / (step - before)))
        elif through is None and values.get("wps", 0) > 0 and values.get("wpb", 0) > 0:
            found.stretches.append(Stretch(before, step, values["wpb"] / values["wps"]))
    found.previous = (step, through)


def _look_at_rest(found: _Found, line: str) -> None:
    if "Namespace(" in line or "'max_update'" in line or "max_update=" in line:
        for name in _SETTINGS:
            if setting := re.search(_SETTING.format(name), line):
                found.settings[name] = setting[1]
    if parameters := _PARAMETERS.search(line):
        found.parameters = count(parameters[1])
    if pairs := _PAIRS.search(line):
        found.pairs = count(pairs[1])
    if devices := _DEVICES.search(line):
        found.devices = count(devices[1])
    if device := _DEVICE.search(line):
        found.device = device[1]
    found.finished = found.finished or "done training in" in line
    found.out_of_memory = found.out_of_memory or _OUT_OF_MEMORY.search(line) is not None
    if (exception := _EXCEPTION.match(line)) and found.exception is None:
        found.exception = (exception[1], (exception[2] or "").strip()[:_LONGEST_QUOTE])


def _loss_curve(entries: list[tuple[float, Values]]) -> Curve:
    """Nats per token. fairseq's losses are in bits; nll_loss is without label smoothing, as perplexity is."""
    points: Points = []
    for at, values in entries:
        if "nll_loss" in values:
            points.append((at, values["nll_loss"] * math.log(2)))
        elif "ppl" in values:
            points.append((at, log_of(values["ppl"])))
        else:
            points.append((at, values["loss"] * math.log(2)))
    return Curve.of(points)


def _record(found: _Found, path: Path, problems: tuple[str, ...]) -> RunRecord:
    trained = found.trained["epoch"] if found.by_epoch else found.trained["inner"] or found.trained["epoch"]
    subset = next(iter(found.valid), "valid")
    valid = found.valid.get(subset, [])
    train_loss, eval_loss = _loss_curve(trained), _loss_curve([entry for entry in valid if "loss" in entry[1]])
    scored = bleu_curve([(at, values["bleu"]) for at, values in valid if "bleu" in values], eval_loss)
    step_seconds, seconds = training_only(found.stretches, [at for at, _ in valid])
    state, failure = _end_of(found)
    sessions = sessions_by_breaks(found.moments) or whole_session(train_loss, eval_loss)
    others = [name for name in found.valid if name != subset]
    left_out = [f"Evaluations on '{name}' were left out; those on '{subset}' were read." for name in others]
    limit = number(found.settings.get("max_epoch" if found.by_epoch else "max_update", ""))
    return RunRecord(
        source="fairseq log",
        path=str(path),
        state=state,
        axis="epoch" if found.by_epoch else "step",
        failure=failure,
        not_finite=found.exception is not None and found.exception[0] == "FloatingPointError",
        problems=(*problems, *left_out, *scored.problems),
        sessions=sessions,
        repeated_steps=repeated(sessions),
        max_steps=limit or None,
        train_loss=train_loss,
        eval_loss=eval_loss,
        bleu=scored.curve,
        bleu_note="; ".join(filter(None, [BLEU_NOTE, scored.note])) if len(scored.curve) else None,
        learning_rate=Curve.of((at, values["lr"]) for at, values in trained if "lr" in values),
        step_seconds=step_seconds,
        steps_per_point=usual_spacing(step_seconds),
        seconds=seconds,
        team=_team(found),
        schedule=None if found.by_epoch else _schedule(found.settings),
        texts=_texts(found.settings, found.pairs),
    )


def _team(found: _Found) -> Team:
    ranks = found.devices or count(found.settings.get("distributed_world_size", ""))
    half = found.settings.get("fp16")
    return Team(
        ranks=ranks,
        parameters=found.parameters,
        gradient_bytes_per_value=None if half is None else (_FLOAT16_BYTES if half == "True" else _FLOAT32_BYTES),
        exchange="allreduce" if ranks is not None and ranks > 1 else None,
        device=found.device,
        precision=None if half is None else ("float16" if half == "True" else "float32"),
    )


def _end_of(found: _Found) -> tuple[State, str | None]:
    if found.finished:
        return "finished", None
    if found.out_of_memory:
        return "crashed", "it ran out of device memory: make --max-tokens smaller and --update-freq larger"
    if found.exception is None:
        return "unknown", None
    name, words = found.exception
    if name == "KeyboardInterrupt":
        return "stopped", None
    return "crashed", ended_by(name, words)


def _schedule(settings: dict[str, str]) -> Schedule | None:
    policy, peak = settings.get("lr_scheduler"), number(settings.get("lr", ""))
    if policy is None or peak is None:
        return None
    warmup = number(settings.get("warmup_updates", "0")) or 0.0
    if policy == "inverse_sqrt" and warmup > 0:
        start = number(settings.get("warmup_init_lr", "-1"))
        return inverse_root(peak=peak, warmup=warmup, start=max(0.0, -1.0 if start is None else start))
    return named(policy, {name: settings[name] for name in ("lr", "warmup_updates") if name in settings})


def _texts(settings: dict[str, str], lines: int | None) -> tuple[Text, ...]:
    sides = [settings.get(name, "None") for name in ("source_lang", "target_lang")]
    return () if "None" in sides else tuple(Text(language=side, cleaned_lines=lines) for side in sides)
