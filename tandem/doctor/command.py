"""The three things that `tandem doctor` does, each with what it prints; only what one of them needs is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.cluster.join.launchers import process_rank

if TYPE_CHECKING:
    from rich.console import Console

    from tandem.config import Config
    from tandem.doctor.card.prediction import Machines


@dataclass(frozen=True)
class DoctorReport:
    """What `tandem doctor` prints, and whether the run may start."""

    facts: dict[str, Any]
    """Ready for JSON."""
    show: Callable[[Console], None]
    passed: bool


def predict_run(config: Config, corpus: Path | None, machines: Machines) -> DoctorReport:
    """What a run would take on cards that are not here."""
    from tandem.doctor.card.prediction import likely_vocabulary, predict_on_card
    from tandem.doctor.doctor_text import show_prediction

    found = predict_on_card(config, likely_vocabulary(config, corpus), machines)
    return DoctorReport(found.as_dict(), partial(show_prediction, found), not found.reasons_against)


def examine_machines(
    config: Config, corpus: Path | None, run: Path, price_per_hour: float | None, console: Console
) -> DoctorReport:
    """What a run would take on these machines, by measurement; progress is shown on the console."""
    from tandem.doctor.doctor_text import show_diagnosis
    from tandem.doctor.examination import examine
    from tandem.monitor.stage_progress import progress_bars

    with progress_bars(console) as progress:
        found = examine(config, corpus, price_per_hour, run, progress)
    return DoctorReport(found.as_dict(), partial(show_diagnosis, found), not found.reasons_against)


def check_cards(config: Config, preset: str, directory: Path, seconds: float, console: Console) -> DoctorReport:
    """Check the cards that are here, and write a page about it into the directory."""
    from tandem.doctor.self_test.check_result import PAGE_NAME, show_self_test, write_page
    from tandem.doctor.self_test.run_checks import self_test
    from tandem.monitor.stage_progress import progress_bars

    with progress_bars(console) as progress:
        found = self_test(config, preset, seconds, progress)
    page = directory / PAGE_NAME
    if process_rank().is_leader:
        write_page(found, page)
    return DoctorReport({**found.as_dict(), "page": str(page)}, partial(show_self_test, found, page), found.passed)
