"""Progress of long work that goes in stages: a bar on a terminal, a line a stage anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@contextmanager
def shown_stages(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function that takes a stage's name, how much is done and how much there is, if that is known."""
    name, bar = TextColumn("{task.description:22}"), BarColumn(bar_width=30)
    columns = (name, bar, MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
                if not console.is_terminal:
                    console.print(f"{stage} ...")
            bars.update(tasks[stage], completed=done, total=total)

        yield show
