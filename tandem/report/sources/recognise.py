"""Tells by its content what a file is."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Literal

from tandem.errors import TandemError
from tandem.report.sources.lines import head_of, is_text, lines_of
from tandem.report.sources.table import fault_of_table, is_table

Kind = Literal["tensorboard", "openseq2seq", "joeynmt", "joeynmt_log", "fairseq", "marian", "table", "mpirun"]

READABLE = (
    "tandem report reads a Tandem run, TensorBoard event files, an OpenSeq2Seq, fairseq or Marian log, "
    "a JoeyNMT validations.txt or train.log, and a CSV file with named columns"
)

# Lines that only the one program writes. mpirun speaks around any program: it counts only where nobody else speaks.
_SIGNATURES = re.compile(
    r"(?P<openseq2seq>\*\*\* (?:Global step|Epoch \d+, global step|Training config|Building graph|Total trainable|"
    r"Starting training|Restored checkpoint|Running evaluation|Finished training)|^time per step = \d)"
    r"|(?P<marian>\bEp\. [\d.]+ : Up\. \d|\] \[(?:marian|config)\] )"
    r"|(?P<joeynmt>^Steps:\s*\d+\s+\w+:)"
    r"|(?P<joeynmt_log>\bStep:\s*\d+,?\s+Batch Loss:|(?:Validation|Evaluation) result \((?:greedy|beam)|Joey-?NMT)"
    r"|(?P<fairseq>\| epoch \d|valid on '[^']+' subset|fairseq|\"(?:valid_)?(?:nll_)?loss\": .*\"(?:valid_)?ppl\": )"
    r"|(?P<mpirun>mpirun|ORTE was unable|orte_base_help_aggregate|ssh: Could not resolve)"
)
# The first event of a file names its version, behind the lengths and checksums of a few bytes.
_EVENT_MARK = b"brain.Event:"
_EVENT_MARK_WITHIN = 64
# One of these is in each of the signatures; to look for them first is ten times as fast.
_MARKS = (
    *("***", "time per", "Ep. ", "] [", "Steps:", "Step:", "result", "Joey", "epoch", "fairseq", "subset", "loss"),
    *("mpirun", "ORTE", "orte", "ssh:"),
)
# A program that has not said its name in so many lines is none of these.
_FARTHEST = 500_000
# Enough to be sure; the rest of a long log need not be looked at twice.
_ENOUGH = 50


def kind_of(path: Path) -> Kind:
    """What a file is; a sentence that says what can be read if it is nothing of that."""
    try:
        head = head_of(path)
        if not head.strip():
            raise TandemError(f"{path} is empty; {READABLE}")
        if _EVENT_MARK in head[:_EVENT_MARK_WITHIN]:
            return "tensorboard"
        if not is_text(head):
            raise TandemError(f"{path} is a binary file, not a log; {READABLE}")
        return _kind_of_text(path)
    except OSError as error:
        raise TandemError(f"{path} cannot be read: {error.strerror}") from error


def _kind_of_text(path: Path) -> Kind:
    counts: dict[str, int] = {}
    first: list[str] = []
    for line in islice(lines_of(path), _FARTHEST):
        found = _SIGNATURES.search(line) if any(mark in line for mark in _MARKS) else None
        if len(first) < 2 and line.strip() and not line.startswith("#"):
            first.append(line)
            if len(first) == 2 and not counts and found is None and is_table(*first):
                return "table"
        if found is not None and found.lastgroup is not None:
            counts[found.lastgroup] = counts.get(found.lastgroup, 0) + 1
            if found.lastgroup != "mpirun" and counts[found.lastgroup] >= _ENOUGH:
                break
    names: tuple[Kind, ...] = ("openseq2seq", "joeynmt", "joeynmt_log", "marian", "fairseq")
    best = max(names, key=lambda name: counts.get(name, 0))
    if counts.get(best, 0):
        return best
    if "mpirun" in counts:
        return "mpirun"
    if (fault := fault_of_table(first)) is not None:
        raise TandemError(f"{path} {fault}; {READABLE}")
    raise TandemError(f"{path} is none of the logs that are known; {READABLE}")
