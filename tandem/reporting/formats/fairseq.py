"""Reads the training log of a fairseq run: plain, progress bar or JSON, of older and newer versions."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.shared import known_schedules
from tandem.reporting.formats.shared.log_contents import LineFacts, LogContents
from tandem.reporting.formats.shared.log_lines import lines_of, log_of, moment, number
from tandem.reporting.formats.shared.log_timing import Stretch
from tandem.reporting.formats.shared.program_settings import GRADIENT_BYTES, Settings, texts_in
from tandem.reporting.formats.shared.split_runs import Mark, longest_run
from tandem.reporting.run_record import RunRecord, Schedule, Team

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
_SETTINGS = (
    *("max_update", "max_epoch", "lr", "lr_scheduler", "warmup_updates", "warmup_init_lr", "fp16"),
    *("distributed_world_size", "source_lang", "target_lang"),
)
_FACTS = {
    "parameters": re.compile(r"num\.(?: shared)? model params: ([\d,]+)"),
    "pairs": re.compile(r" train \w+-\w+ (\d+) examples"),
    "devices": re.compile(r"training on (\d+) (?:GPUs|devices)"),
    "device": re.compile(r"; name = (.+?)\s*$"),
}


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
class _Contents(LogContents):
    """What was read of a fairseq log so far."""

    trained: dict[Kind, list[tuple[float, Values]]] = field(default_factory=lambda: {"inner": [], "epoch": []})
    valid: dict[str, list[tuple[float, Values]]] = field(default_factory=dict)
    """Evaluations by the name of their subset."""
    by_epoch: bool = False
    updates: float | None = None
    previous: tuple[float, float | None] | None = None
    """The step of the last line of progress, and the training seconds until then where the log counts them."""
    facts: LineFacts = field(default_factory=lambda: LineFacts(_FACTS))

    def look_at(self, line: str) -> None:
        if (entry := _entry(line)) is not None:
            self._look_at_entry(entry, moment(line))
            return
        if "Namespace(" in line or "'max_update'" in line or "max_update=" in line:
            for name in _SETTINGS:
                if setting := re.search(_SETTING.format(name), line):
                    self.settings[name] = setting[1]
        self.facts.look_at(line)
        self.end.look_at(line, last_words="done training in")

    def _look_at_entry(self, entry: _Entry, when: float | None) -> None:
        self.end.go_on()
        self.updates = entry.values.get("num_updates", self.updates)
        at = self.updates
        if at is None:
            if entry.epoch is None or entry.kind == "inner":
                return
            self.by_epoch, at = True, entry.epoch
        if entry.kind == "valid":
            self.valid.setdefault(entry.subset, []).append((at, entry.values))
        else:
            self.trained[entry.kind].append((at, entry.values))
            if not self.by_epoch and entry.kind == "inner":
                self._look_at_time(at, entry)
        if when is not None:
            self.moments.append((at, when))

    def _look_at_time(self, step: float, entry: _Entry) -> None:
        """Older versions count the seconds of training so far; newer ones give the speed since the last line."""
        values = entry.values
        through = values.get("train_wall") if entry.cumulative else None
        if self.previous is not None and step > self.previous[0]:
            before, seconds = self.previous
            if through is not None and seconds is not None and through > seconds:
                self.stretches.append(Stretch(before, step, (through - seconds) / (step - before)))
            elif through is None and values.get("wps", 0) > 0 and values.get("wpb", 0) > 0:
                self.stretches.append(Stretch(before, step, values["wpb"] / values["wps"]))
        self.previous = (step, through)


def read_fairseq(path: Path) -> RunRecord:
    """The run of a log; the one with the most lines of progress if there are several."""
    found = _Contents()
    chosen = longest_run(_marks(path), _BEGINS, path)
    for line in chosen.lines_of(path):
        found.look_at(line)
    found.problems += chosen.problems
    return _record(found, path)


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
    """The progress that a line reports; None if it reports none."""
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
    except (ValueError, RecursionError):
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


def _nats(values: Values) -> float:
    """The loss per token. fairseq's is in bits; nll_loss is without label smoothing, as perplexity is."""
    if "nll_loss" in values:
        return values["nll_loss"] * math.log(2)
    return log_of(values["ppl"]) if "ppl" in values else values["loss"] * math.log(2)


def _record(found: _Contents, path: Path) -> RunRecord:
    settings = found.settings
    trained = found.trained["epoch"] if found.by_epoch else found.trained["inner"] or found.trained["epoch"]
    subset, *others = found.valid or ["valid"]
    valid = found.valid.get(subset, [])
    found.train_loss = [(at, _nats(values)) for at, values in trained]
    found.eval_loss = [(at, _nats(values)) for at, values in valid if "loss" in values]
    found.bleu = [(at, values["bleu"]) for at, values in valid if "bleu" in values]
    found.learning_rate = [(at, values["lr"]) for at, values in trained if "lr" in values]
    found.evaluated = {at for at, _ in valid}
    found.problems += [f"Evaluations on '{name}' were left out; those on '{subset}' were read." for name in others]
    ranks = found.facts.count("devices") or settings.count("distributed_world_size")
    precision = {"True": "float16", "False": "float32"}.get(settings.get("fp16", ""))
    state, failure = found.end.state(remedy="make --max-tokens smaller and --update-freq larger")
    return replace(
        found.record("fairseq log", path, BLEU_NOTE),
        state=state,
        axis="epoch" if found.by_epoch else "step",
        failure=failure,
        not_finite=found.end.exception is not None and found.end.exception[0] == "FloatingPointError",
        max_steps=settings.number("max_epoch" if found.by_epoch else "max_update") or None,
        team=Team(
            ranks=ranks,
            parameters=found.facts.count("parameters"),
            gradient_bytes_per_value=GRADIENT_BYTES.get(precision or ""),
            exchange="allreduce" if ranks is not None and ranks > 1 else None,
            device=found.facts.last("device"),
            precision=precision,
        ),
        schedule=None if found.by_epoch else _schedule(settings),
        texts=texts_in([settings.get("source_lang"), settings.get("target_lang")], found.facts.count("pairs")),
    )


def _schedule(settings: Settings) -> Schedule | None:
    policy, peak = settings.get("lr_scheduler"), settings.number("lr")
    if policy is None or peak is None:
        return None
    warmup = settings.number("warmup_updates") or 0.0
    if policy == "inverse_sqrt" and warmup > 0:
        start = settings.number("warmup_init_lr")
        return known_schedules.inverse_root(peak=peak, warmup=warmup, start=max(0.0, start or 0.0))
    return known_schedules.by_name(policy, settings.only("lr", "warmup_updates"))


FORMAT = LogFormat(
    title="a fairseq log",
    read=read_fairseq,
    lines={
        "| epoch ": r"\| epoch \d",
        "valid on '": _SUBSET.pattern,
        "fairseq": "",
        'loss": ': r"\"(?:valid_)?(?:nll_)?loss\": .*\"(?:valid_)?ppl\": ",
    },
)
