"""What a self-test has found, the same on all processes: as a table on the terminal, and a page to send in."""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tandem.cluster.source_version import package_version
from tandem.monitor.network_interfaces import host_name
from tandem.storage import write_whole
from tandem.units import row, short_duration

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"
PAGE_NAME = "gpu-check.md"
STYLES = {PASSED: "green", FAILED: "bold red", NOT_APPLICABLE: "dim"}
# Directories in an error's message; the file's own name may stay.
DIRECTORIES = re.compile(r"(?<![\w.])(?:/[^\s/:'\"]+)+/")


@dataclass(frozen=True)
class Outcome:
    """What one process has found in one check."""

    status: str
    found: str
    """One sentence."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Everything that was measured, by name; the name ends with the unit."""
    seconds: float = 0.0

    @classmethod
    def of(cls, passed: bool, found: str, **figures: Any) -> Outcome:
        return cls(PASSED if passed else FAILED, found, figures)

    @classmethod
    def not_applicable(cls, reason: str, **figures: Any) -> Outcome:
        return cls(NOT_APPLICABLE, reason, figures)


@dataclass(frozen=True)
class CheckResult:
    """What all processes have found in one check."""

    name: str
    expected: str
    status: str
    """Failed if any process says so; not applicable if all do."""
    found: str
    """The sentence of the first process that failed, or else of the first that the check applied to."""
    seconds: float
    """Time that the slowest process took."""
    by_rank: tuple[Outcome, ...]

    @classmethod
    def of(cls, name: str, expected: str, outcomes: list[Outcome]) -> CheckResult:
        """One result of what every process has found, by rank."""
        order = (FAILED, PASSED, NOT_APPLICABLE)
        rank = min(range(len(outcomes)), key=lambda rank: order.index(outcomes[rank].status))
        said = outcomes[rank]
        found = f"rank {rank}: {said.found}" if said.status == FAILED and len(outcomes) > 1 else said.found
        return cls(name, expected, said.status, found, max(each.seconds for each in outcomes), tuple(outcomes))


@dataclass(frozen=True)
class SelfTest:
    """All checks; nothing in it names a host, a user or a directory, so that it can be sent in."""

    preset: str
    """Sizes of the model that was trained."""
    processes: int
    versions: str
    checks: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return all(check.status != FAILED for check in self.checks)

    @property
    def summary(self) -> str:
        """One sentence: how many checks ended in which way, and how long they took."""
        statuses = [check.status for check in self.checks]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in (PASSED, FAILED, NOT_APPLICABLE))
        return f"{counts}, in {sum(check.seconds for check in self.checks):.0f} s"

    def as_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "summary": self.summary, **asdict(self)}


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def anonymous(text: str) -> str:
    """A text without the host's name and without directories, which may hold a user's name."""
    host = socket.gethostname()
    # The longest first: a short name is the beginning of a long one.
    for name in sorted({host, host.partition(".")[0], host_name()}, key=len, reverse=True):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "HOST", text)
    return DIRECTORIES.sub("", text)


def versions() -> str:
    """Versions of Tandem, Python and the system, without the machine's name."""
    return f"{package_version()}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


# --- For people ------------------------------------------------------------------------------------------------


def show_self_test(found: SelfTest, page: Path, console: Console) -> None:
    table = Table("check", "result", "found", "time")
    for check in found.checks:
        result = Text(check.status, style=STYLES[check.status])
        table.add_row(Text(check.name), result, Text(check.found), short_duration(check.seconds))
    console.print(table, highlight=False)
    console.print(Text(found.summary, style="bold"), highlight=False)
    console.print(Text(f"wrote {page}, which names no host, user or directory: send it in"), highlight=False)


def write_page(found: SelfTest, page: Path) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, "\n".join([*_lines(found), ""]).encode())


def _lines(found: SelfTest) -> Iterator[str]:
    yield "# GPU check"
    yield ""
    cards = f"{found.processes} process{'es' if found.processes > 1 else ''}, one for each card"
    yield f"{found.versions}; {cards}; sizes of `{found.preset}`. {found.summary[0].upper()}{found.summary[1:]}."
    yield ""
    yield "| check | expected | result | found | time |"
    yield "|---|---|---|---|---|"
    for check in found.checks:
        cells = (check.name, check.expected, check.status, check.found, short_duration(check.seconds))
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""
    yield "## Figures"
    for check in found.checks:
        yield from _figures(check)


def _figures(check: CheckResult) -> Iterator[str]:
    """What the first process has measured in a check, and what the others found that is not the same."""
    first = check.by_rank[0]
    others = [f"rank {rank}: {each.found}" for rank, each in enumerate(check.by_rank) if each.found != first.found]
    if not first.figures and not others:
        return
    yield ""
    yield f"### {check.name[0].upper()}{check.name[1:]}"
    yield ""
    for name, value in first.figures.items():
        label, texts = row(name, value)
        yield f"- {label}: {'; '.join(texts)}"
    yield from (f"- {_cell(text)}" for text in others)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
