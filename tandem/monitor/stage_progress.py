"""Progress of long work that goes in stages: bars on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn

from tandem.corpus.progress import ProgressCallback
from tandem.monitor.console_view import literal, say
from tandem.units import clock_time

# Name, bar, amount, rate and time fit a terminal of 80 columns.
_NAME_WIDTH = 24
_BAR_WIDTH = 10
# Rows of the screen left alone, for the command's own line and the cursor.
_SPARE_ROWS = 2
# What a shortened name keeps of its beginning: the verb.
_NAME_HEAD = 8
# More often nobody can follow, and an estimate of speed needs samples that reach back some seconds.
_SECONDS_A_SAMPLE = 0.1
# Without a terminal a stage is worth a line of progress after so long, then after twice as long, up to five minutes:
# whoever reads the log wants to know that it goes on, not to scroll.
_FIRST_LINE, _LONGEST_SILENCE = 10.0, 300.0


@dataclass
class _Stage:
    """A stage that has begun."""

    task_id: TaskID
    began: float
    sampled: float
    next_line: float
    silence: float = _FIRST_LINE
    ended: bool = False


@contextmanager
def progress_bars(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[ProgressCallback]:
    """Yields a function that takes a stage's name, how much is done and how much there is, if that is known.

    Stages may run at the same time; each is known by its name.
    """
    texts = [TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("name", "amount", "rest")]
    columns = (texts[0], BarColumn(bar_width=_BAR_WIDTH), *texts[1:])
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal, get_time=clock)
    stages: dict[str, _Stage] = {}

    def show(stage: str, done: int, total: int | None, unit: str = "") -> None:
        now = clock()
        known = stages.get(stage)
        if known is None:
            name = _short(stage)
            task_id = bars.add_task(stage, total=total, completed=done, unit=unit, name=name, amount="", rest="")
            stages[stage] = known = _Stage(task_id, began=now, sampled=now, next_line=now + _FIRST_LINE)
            if not console.is_terminal:
                say(console, f"{literal(stage)} ...")
        elif now - known.sampled < _SECONDS_A_SAMPLE and done != total:
            return
        known.sampled, task = now, bars.tasks[known.task_id]
        if done < task.completed:  # begun again
            bars.reset(task.id, completed=done, total=total)
        bars.update(task.id, completed=done, total=total)
        bars.update(task.id, amount=_amount(task), rest=_rest(task))
        if console.is_terminal:
            _make_room(bars, console.height - _SPARE_ROWS)
        else:
            _log(console, known, task, now)

    with bars:
        yield show


def _make_room(bars: Progress, rows: int) -> None:
    """Hide the oldest stages that are over, where there are more than the screen has rows."""
    shown = [task for task in bars.tasks if task.visible]
    over = [task for task in shown if task.finished]
    for task in over[: max(0, len(shown) - rows)]:
        bars.update(task.id, visible=False)


def _log(console: Console, stage: _Stage, task: Task, now: float) -> None:
    """A line now and then about a stage that takes long, and one at its end."""
    if task.finished and not stage.ended and stage.silence > _FIRST_LINE:
        say(console, f"{literal(task.description)}: {_amount(task)} in {clock_time(now - stage.began)}")
    elif not task.finished and now >= stage.next_line:
        stage.silence = min(2 * stage.silence, _LONGEST_SILENCE)
        stage.next_line = now + stage.silence
        say(console, f"{literal(task.description)}: {_amount(task)}  {_rest(task)}".rstrip())
    stage.ended = task.finished


def _short(name: str) -> str:
    """A stage's name, shortened in its middle: names of archives often differ only at their ends."""
    if len(name) > _NAME_WIDTH:
        name = f"{name[:_NAME_HEAD]}…{name[_NAME_HEAD + 1 - _NAME_WIDTH :]}"
    return f"{name:{_NAME_WIDTH}}"


def _amount(task: Task) -> str:
    """How much is done of how much, MB being 10^6 bytes; nothing before there is anything to say."""
    unit = task.fields["unit"]
    if not task.completed and task.total is None:
        return ""
    scale, form, name = (1e6, ",.1f", " MB") if unit == "B" else (1, ",.0f", f" {unit}".rstrip())
    whole = "" if task.total is None or task.finished else f"/{task.total / scale:{form}}"
    return f"{task.completed / scale:{form}}{whole}{name}"


def _rest(task: Task) -> str:
    """The rate, where it is one of bytes, and the time that is left."""
    parts = []
    if task.fields["unit"] == "B" and task.speed and not task.finished:
        parts.append(f"{task.speed / 1e6:.1f} MB/s")
    if task.finished:
        parts.append(f"in {clock_time(task.finished_time or 0.0)}")
    elif task.time_remaining is not None:
        parts.append(f"{clock_time(task.time_remaining)} left")
    return "  ".join(parts)
