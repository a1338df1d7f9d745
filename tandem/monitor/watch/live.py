"""`tandem watch`: a live view of a run, from its journals alone, on any host that has some of them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tandem.config import Config
from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.monitor.records import Sampled, Surveyed
from tandem.monitor.watch.follow import JournalFollower
from tandem.monitor.watch.panels import RunScreen
from tandem.monitor.watch.run_state import RunState

# As often as hosts are sampled.
EVERY_SECONDS = 1.0


def watch(run_directory: Path, console: Console, once: bool) -> None:
    """Show a run until it ends or Ctrl-C is pressed; a single time if asked to, or where nothing can be redrawn."""
    watcher = RunWatcher(run_directory)
    with suppress(KeyboardInterrupt):
        screen = watcher.update()
        if console.is_interactive and not once and not watcher.over:
            screen = _watch_live(watcher, screen, console)
        console.print(screen)


def _watch_live(watcher: RunWatcher, screen: RunScreen, console: Console) -> RunScreen:
    """Redraw the screen until the run has ended; the last one."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        over = False
        while not over:
            live.update(replace(screen, fitted=True), refresh=True)
            time.sleep(EVERY_SECONDS)
            # Once more after the end: other processes may have something to say about it.
            over, screen = watcher.over, watcher.update()
    return screen


class RunWatcher:
    """Reads what is new in a run's directory, again and again."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            what = "a file, not a run's directory" if directory.exists() else "no such directory"
            raise TandemError(f"{directory}: {what}; give the --run of `tandem train`")
        self._run = RunPaths(directory)
        # By any of these a run is known: the first thing made of it, the last, and what a host without checkpoints has.
        if not any(path.exists() for path in (self._run.lock_file, self._run.run_file, self._run.journals)):
            missing = self._run.journals.name
            raise TandemError(f"{directory}: not a run (it has no {missing}); give the --run of `tandem train`")
        # The screen shows the present of the hosts, not the day of samples before it.
        self._journals = JournalFollower(self._run.journals, newest_only=(Sampled.kind, Surveyed.kind))
        self._state = RunState()
        self._first = True

    @property
    def over(self) -> bool:
        return self._state.session is not None and self._state.session.ended is not None

    def update(self) -> RunScreen:
        """Read what is new; what the run looks like now."""
        anything_new = False
        for rank, line in self._journals.new_lines():
            anything_new = True
            self._state.add_line(rank, line)
        now = time.time()
        if anything_new and not self._first:
            # The writer may have another clock; that something has come is seen on this one.
            self._state.last_record_time = now
        self._first = False
        return RunScreen(str(self._run.directory), self._state, now, self._evaluate_every())

    def _evaluate_every(self) -> int | None:
        """After how many steps the run evaluates, where its settings are on this host."""
        with suppress(TandemError, OSError):
            return Config.load_saved(self._run.config_file).evaluation.every_steps
        return None
