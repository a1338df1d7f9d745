"""What a view is: something that shows the records of a run to somebody, found by its name in the setting `views`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.records import Record
from tandem.monitor.secrets import error_without_secrets


class View:
    """Shows records; every method may be left out."""

    def show(self, record: Record) -> None:
        """Show one record."""

    def stepped(self, step: int) -> None:
        """Show that a step was taken; of interest only at that moment, so most views do not."""

    def working(self, stage: str, done: int, total: int) -> None:
        """Show how far a long stage is; of interest only while it lasts."""

    def pop_trouble(self) -> str:
        """What the user should know of a view that cannot show everything and goes on; each time once."""
        return ""

    def begin_close(self) -> None:
        """Begin to close, without waiting for it; all views are told so before the first of them is closed."""

    def close(self) -> None:
        """Finish; nothing is shown afterwards."""


MakeView: TypeAlias = Callable[[RunPaths, Config], View]
"""A view's class (or a function that makes one) takes the paths of the run's directory and the settings of the run."""


def switched_off(name: str, error: BaseException) -> str:
    """The line that tells of a view that raised: hours of training matter more than one way to look at them."""
    why = error_without_secrets(error)
    return f"the view {name} failed ({why}) and is switched off; the training goes on without it"
