"""What a view is: something that shows the records of a run to somebody, found by its name in the setting `views`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.records import Record
from tandem.registry import VIEWS


class View:
    """Shows records; every method may be left out."""

    def show(self, record: Record) -> None:
        """Show one record."""

    def stepped(self, step: int) -> None:
        """Show that a step was taken; of interest only at that moment, so most views do not."""

    def working(self, stage: str, done: int, total: int) -> None:
        """Show how far a long stage is; of interest only while it lasts."""

    def close(self) -> None:
        """Finish; nothing is shown afterwards."""


MakeView: TypeAlias = Callable[[RunPaths, Config], View]
"""A view's class (or a function that makes one) takes the paths of the run's directory and the settings of the run."""


def open_views(run: RunPaths, config: Config) -> list[View]:
    """The views that the setting `monitor.views` names."""
    makers: list[MakeView] = [VIEWS.get(name) for name in config.monitor.views]
    return [make(run, config) for make in makers]
