"""Reads the training log of OpenNMT-py, or of eole, which goes on from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.shared.log_contents import LineFacts, LogContents
from tandem.reporting.formats.shared.log_lines import NUMBER, append_number, log_of, moment, number
from tandem.reporting.formats.shared.log_timing import sessions_by_breaks, stretches_between
from tandem.reporting.formats.shared.split_runs import longest_run, step_marks
from tandem.reporting.run_record import RunRecord, Team

BLEU_NOTE = "as OpenNMT computes it on its validation text; its signature is not in the log"

_STEP = re.compile(r"\bStep +(\d+)(?:/ *\d+)?; *acc:")
_PLANNED = re.compile(r"\bStep +\d+/ *(\d+);")
_PERPLEXITY = re.compile(rf"\bppl: *({NUMBER})", re.IGNORECASE)
_RATE = re.compile(rf"\blr: *({NUMBER})", re.IGNORECASE)
_ELAPSED = re.compile(r"tok/s; *(\d+) sec")
_VALIDATION = re.compile(rf"Validation perplexity: *({NUMBER})", re.IGNORECASE)
_BLEU = re.compile(rf"validation BLEU: *({NUMBER})", re.IGNORECASE)
_BEGINS = re.compile(r"Starting training on|Building model|\* number of parameters")
_FACTS = {"parameters": re.compile(r"number of parameters: *([\d,]+)")}
# Said when no evaluation was better for a while; nothing is said after the last planned step.
_LAST_WORDS = "Training finished after"


@dataclass
class _Contents(LogContents):
    """What was read of a log so far."""

    facts: LineFacts = field(default_factory=lambda: LineFacts(_FACTS))
    step: float | None = None
    planned: float | None = None

    def look_at(self, line: str) -> None:
        if found := _STEP.search(line):
            self.end.go_on()
            self.step = float(found[1])
            self.planned = float(planned[1]) if (planned := _PLANNED.search(line)) else self.planned
            # The cross-entropy beside it has two digits only.
            if (perplexity := _PERPLEXITY.search(line)) and (value := number(perplexity[1])) is not None:
                self.train_loss.append((self.step, log_of(value)))
            append_number(self.learning_rate, self.step, _RATE.search(line))
            elapsed = _ELAPSED.search(line)
            when = moment(line) or (float(elapsed[1]) if elapsed else None)
            if when is not None:
                self.moments.append((self.step, when))
            return
        # The evaluation comes right after the step that it is of, which may not be one that was printed.
        if self.step is not None and (found := _VALIDATION.search(line)) and (value := number(found[1])) is not None:
            self.eval_loss.append((self.step, log_of(value)))
        elif self.step is not None:
            append_number(self.bleu, self.step, _BLEU.search(line))
        self.facts.look_at(line)
        self.end.look_at(line, last_words=_LAST_WORDS)


def read_opennmt(path: Path) -> RunRecord:
    """The run of a log; the one with the most lines of progress if there are several."""
    found = _Contents()
    chosen = longest_run(step_marks(path, _STEP), _BEGINS, path)
    for line in chosen.lines_of(path):
        found.look_at(line)
    found.problems += chosen.problems
    found.evaluated = {step for step, _ in (*found.eval_loss, *found.bleu)}
    found.stretches = stretches_between(found.moments, sessions_by_breaks(found.moments))
    state, failure = found.end.state(remedy="make batch_size smaller")
    done = found.step is not None and found.planned is not None and found.step >= found.planned
    return replace(
        found.record("OpenNMT log", path, BLEU_NOTE),
        state="finished" if done and state == "unknown" else state,
        failure=failure,
        max_steps=found.planned,
        team=Team(parameters=found.facts.count("parameters")),
    )


FORMAT = LogFormat(
    title="an OpenNMT-py or eole log",
    read=read_opennmt,
    lines={"; acc:": _STEP.pattern, "Validation perplexity": r"Validation perplexity: *\d"},
)
