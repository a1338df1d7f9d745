"""Reads why mpirun ended: what it and ssh say when a program does not start, or is ended by a fault."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tandem.reporting.formats.log_format import LogFormat
from tandem.reporting.formats.shared.log_contents import LineFacts
from tandem.reporting.formats.shared.log_lines import lines_of, listed
from tandem.reporting.run_record import RunRecord

_REASONS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_PRINTED = {name: re.compile(texts["prints"]) for name, texts in _REASONS.items()}


class LaunchTrouble(LineFacts):
    """Collects the reasons for its end that a console log of mpirun gives."""

    def __init__(self) -> None:
        super().__init__(_PRINTED)

    @property
    def ended_by_fault(self) -> bool:
        """Whether a process was killed or ended with an error."""
        return bool(self.all("signal") or self.all("status"))

    @property
    def reasons(self) -> str:
        """All reasons with their remedies, in one sentence; empty if the log gives none."""
        found = {name: sorted(self.all(name)) for name in _REASONS if self.all(name)}
        if len(found) > 1:
            # That a daemon did not start follows from each of the others.
            found.pop("daemons", None)
        return "; ".join(_REASONS[name]["reason"].format(listed(values)) for name, values in found.items())


def read_failed_launch(path: Path) -> RunRecord:
    """A console log of mpirun without output of a training program."""
    trouble = LaunchTrouble()
    for line in lines_of(path):
        trouble.look_at(line)
    reasons = trouble.reasons or "the log does not say why (look at the output of mpirun itself)"
    failure = f"mpirun never started the training program: {reasons}"
    return RunRecord(source="mpirun console log", path=str(path), state="crashed", failure=failure)


FORMAT = LogFormat(
    title="an mpirun console log",
    read=read_failed_launch,
    lines={
        # What it says of itself; its bare name stands in other files, too.
        **dict.fromkeys(("mpirun was", "mpirun has", "mpirun noticed", "mpirun detected", "mpirun:"), ""),
        "ORTE was unable": "",
        "orte_base_help_aggregate": "",
        "ssh: Could not resolve": "",
    },
    is_launcher=True,
)
