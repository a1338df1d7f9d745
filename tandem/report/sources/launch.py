"""Why mpirun ended: what it and ssh say when a program does not start, or is ended by a fault."""

from __future__ import annotations

import re
from pathlib import Path

from tandem.report.record import RunRecord
from tandem.report.sources.lines import lines_of, listed

_UNRESOLVED = re.compile(r"Could not resolve hostname (\S+?):")
_NO_FILE = re.compile(r"can't open file '([^']+)'")
_DENIED = re.compile(r"(\S+): Permission denied \(")
_REFUSED = re.compile(r"connect to host (\S+) port \d+: (.+)")
_NO_PROGRAM = re.compile(r"sh: (?:line )?(?:\d+: )?(\S+?): (?:command )?not found")
_SIGNAL = re.compile(r"exited on signal (\d+)(?: \(([^)]+)\))?")
_STATUS = re.compile(r"^\s*Exit code:\s+(\d+)")
_UNREADABLE_NAME = re.compile(r"^\s*node:\s+(\S+)")


class LaunchTrouble:
    """Collects the reasons that a console log gives, line by line."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def look_at(self, line: str) -> None:
        for kind, pattern in (
            ("unresolved", _UNRESOLVED),
            ("file", _NO_FILE),
            ("denied", _DENIED),
            ("refused", _REFUSED),
            ("program", _NO_PROGRAM),
            ("signal", _SIGNAL),
            ("status", _STATUS),
            ("name", _UNREADABLE_NAME),
        ):
            if found := pattern.search(line):
                names = self._found.setdefault(kind, [])
                if found[1] not in names:
                    names.append(found[1])
        if "unable to reliably start" in line:
            self._found.setdefault("daemons", [])

    @property
    def ended_by_fault(self) -> bool:
        """Whether a process was killed or ended with an error."""
        return bool({"signal", "status"} & self._found.keys())

    @property
    def reasons(self) -> str:
        """All reasons with their remedies, in one sentence; empty if the log gives none."""
        remedies = {
            "unresolved": "the host names {} could not be resolved (put the machines' real names or addresses there)",
            "name": "the host name {} is not one that mpirun accepts (letters, digits, dots and hyphens only)",
            "denied": "{} refused the login (give ssh a key that it knows)",
            "refused": "{} could not be reached by ssh (check that it is up and its port open)",
            "file": "{} was not found (start in the directory that holds it, on every machine)",
            "program": "{} is not installed on every machine",
            "signal": "a process was ended by signal {}",
            "status": "a process ended with exit code {}",
        }
        said = {kind: listed(sorted(names)) for kind, names in self._found.items() if kind in remedies}
        known = [text.format(said[kind]) for kind, text in remedies.items() if kind in said]
        if not known and "daemons" in self._found:
            known = ["it could not start its daemon on every machine (check that ssh and mpirun work there)"]
        return "; ".join(known)


def read_failed_launch(path: Path) -> RunRecord:
    """A console log in which mpirun speaks and no training program does."""
    trouble = LaunchTrouble()
    for line in lines_of(path):
        trouble.look_at(line)
    reasons = trouble.reasons or "the log does not say why (look at the output of mpirun itself)"
    failure = f"mpirun never started the training program: {reasons}"
    return RunRecord(source="mpirun console log", path=str(path), state="crashed", failure=failure)
