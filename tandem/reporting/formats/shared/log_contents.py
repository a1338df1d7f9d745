"""Collects what the lines of a log report, and makes the record of a run of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tandem.reporting.formats.shared.log_lines import count
from tandem.reporting.formats.shared.log_timing import (
    Points,
    Stretch,
    repeated_steps,
    sessions_by_breaks,
    training_only,
    usual_spacing,
    whole_session,
)
from tandem.reporting.formats.shared.program_settings import Settings
from tandem.reporting.run_record import Curve, RunRecord, State, TrainingSession

# A model fits its training text at least about as well as other text. Where its training loss is more than twice the
# loss on other text, the one is summed over a sentence or a batch and the other is per token.
_OTHER_UNIT = 2.0
# A model that is as unsure of a token as if it chose among 100 cannot translate: its BLEU is about 0, never 5 to 100.
# The best loss of the run counts, since a good model may still diverge or overfit later.
_HOPELESS_LOSS = 4.6
# The last part of a run, in which losses change little.
_LATE_SHARE = 0.25
# Evaluations so far apart count steps; closer ones may be epochs, and the one called 0 comes after the first.
_FEWEST_STEPS = 10.0
# A BLEU that is lost to this share from the first evaluation to the second, while the loss falls, was never earned.
_FALLEN_SHARE = 0.5
_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError|Ran out of (?:GPU )?memory|ResourceExhaustedError|OOM when allocating"
)
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt))\b(?:: (.*))?")
LONGEST_QUOTE = 160


@dataclass
class ProgramEnd:
    """How a Python program ended, by the lines of its log."""

    finished: bool = False
    out_of_memory: bool = False
    exception: tuple[str, str] | None = None

    def look_at(self, line: str, last_words: str) -> None:
        """Take a line that reports no progress; `last_words` are printed at the planned end."""
        self.finished = self.finished or last_words in line
        self.out_of_memory = self.out_of_memory or _OUT_OF_MEMORY.search(line) is not None
        if (found := _EXCEPTION.match(line)) and self.exception is None:
            self.exception = (found[1], (found[2] or "").strip()[:LONGEST_QUOTE])

    def go_on(self) -> None:
        """Forget earlier faults: the program makes progress, so they have not ended it."""
        self.out_of_memory, self.exception = False, None

    def state(self, remedy: str) -> tuple[State, str | None]:
        """How the run ended and, if it crashed, why; `remedy` is what to do about too little memory."""
        if self.finished:
            return "finished", None
        if self.out_of_memory:
            return "crashed", f"it ran out of device memory: {remedy}"
        if self.exception is None:
            return "unknown", None
        name, words = self.exception
        if name == "KeyboardInterrupt":
            return "stopped", None
        said = words.rstrip(". ")
        return "crashed", f"it was ended by {name}" + (f": {said}" if said else ", which the log explains")


class LineFacts:
    """Single facts in the lines of a log, each found by a pattern with a name."""

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        self._patterns = patterns
        self._found: dict[str, list[str]] = {}

    def look_at(self, line: str) -> None:
        for name, pattern in self._patterns.items():
            if found := pattern.search(line):
                self._found.setdefault(name, []).append(found[found.lastindex or 0])

    def all(self, name: str) -> list[str]:
        """All values of a name, each once, in order."""
        return list(dict.fromkeys(self._found.get(name, ())))

    def last(self, name: str) -> str | None:
        return self._found[name][-1] if name in self._found else None

    def count(self, name: str) -> int | None:
        """The last value as a whole number; None if it is none."""
        return count(self.last(name) or "")


@dataclass
class LogContents:
    """The series, settings and moments of a log; each format adds what else it knows to the record."""

    train_loss: Points = field(default_factory=list)
    eval_loss: Points = field(default_factory=list)
    tokens_per_loss_value: float = 1.0
    """Tokens that a value of the evaluation loss stands for: more than one if it is per sentence."""
    bleu: Points = field(default_factory=list)
    learning_rate: Points = field(default_factory=list)
    evaluated: set[float] = field(default_factory=set)
    """Steps at which anything was evaluated."""
    stretches: list[Stretch] = field(default_factory=list)
    moments: Points = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    problems: list[str] = field(default_factory=list)
    end: ProgramEnd = field(default_factory=ProgramEnd)

    def record(self, source: str, path: Path, bleu_note: str, sessions: tuple[TrainingSession, ...] = ()) -> RunRecord:
        """The run that the series make; sessions follow from the moments of lines if they are not given."""
        train_loss, eval_loss = Curve.of(self.train_loss), Curve.of(self.eval_loss)
        bleu, scale_note = self._scaled_bleu(Curve(eval_loss.at, eval_loss.values / self.tokens_per_loss_value))
        step_seconds, seconds = training_only(self.stretches, self.evaluated)
        lengths = [stretch.last - stretch.first for stretch in self.stretches]
        sessions = sessions or sessions_by_breaks(self.moments) or whole_session(train_loss, eval_loss, bleu)
        return RunRecord(
            source=source,
            path=str(path),
            state="unknown",
            problems=tuple(self.problems),
            sessions=sessions,
            repeated_steps=repeated_steps(sessions),
            train_loss=train_loss,
            eval_loss=eval_loss,
            tokens_per_loss_value=self.tokens_per_loss_value,
            bleu=bleu,
            bleu_note="; ".join(filter(None, [bleu_note, scale_note])) if len(bleu) else None,
            learning_rate=Curve.of(self.learning_rate),
            step_seconds=step_seconds,
            steps_per_point=(float(np.median(lengths)) or None) if lengths else None,
            seconds=seconds,
        )

    def _scaled_bleu(self, eval_loss: Curve) -> tuple[Curve, str]:
        """BLEU from 0 to 100 without a value that no untrained model can have, and what was done to the scale.

        Values up to 1 may be shares, or the BLEU of a model that learnt nothing; its loss in nats per token tells.
        """
        curve = Curve.of(self.bleu)
        later = Curve(curve.at[1:], curve.values[1:])
        if len(later.finite) and curve.values[0] > later.finite.values.max() and _is_untrained(curve, eval_loss):
            curve = later
            self.problems.append("BLEU before any training is above all later ones, so the first one was left out.")
        highest = curve.finite.values.max(initial=0.0)
        if highest > 1 or highest <= 0:
            return curve, ""
        if len(eval_loss.finite) and eval_loss.finite.values.min() > _HOPELESS_LOSS:
            return curve, (
                f"no value is above 1, but the evaluation loss never falls below {_HOPELESS_LOSS} (a perplexity of "
                "100), so the scale is taken to be 0 to 100"
            )
        note = "no value is above 1, so the scale is taken to be 0 to 1 and was multiplied by 100"
        return Curve(curve.at, curve.values * 100), note


def _is_untrained(bleu: Curve, eval_loss: Curve) -> bool:
    """Whether a BLEU that begins with its best was first taken before any training: at step 0, or at the worst loss.

    Some programs score a copy of the reference then.
    """
    if (usual_spacing(bleu) or 0.0) >= _FEWEST_STEPS and bleu.at[0] <= 0:
        return True
    losses = eval_loss.finite
    worst = bool(len(losses)) and eval_loss.at[0] == bleu.at[0] and eval_loss.values[0] >= losses.values.max()
    return worst and bool(bleu.values[1] < _FALLEN_SHARE * bleu.values[0])


def same_unit(training: Points, evaluation: Points) -> bool:
    """Whether the two losses can be per token both, by their size late in the run."""
    curves = [Curve.of(points).finite for points in (training, evaluation)]
    if not all(map(len, curves)):
        return True
    trained, evaluated = (np.median(curve.values[-max(1, round(len(curve) * _LATE_SHARE)) :]) for curve in curves)
    return bool(evaluated <= 0 or trained <= _OTHER_UNIT * evaluated)
