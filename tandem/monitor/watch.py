"""`tandem watch`: a run as it goes on, from its journals alone, on any host that has some of them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tandem.config import load_saved
from tandem.errors import TandemError
from tandem.monitor.follow import Followed
from tandem.monitor.records import Sampled, Surveyed
from tandem.monitor.watch_state import RunState
from tandem.monitor.watch_view import Picture

JOURNALS = "journal"
# By any of these a run is known: the first thing made of it, the last, and what a host has that keeps no checkpoints.
SIGNS_OF_A_RUN = (".lock", "run.json", JOURNALS)
# As often as hosts are sampled.
EVERY_SECONDS = 1.0


def watch(run_directory: Path, console: Console, once: bool) -> None:
    """Show a run until it ends or Ctrl-C is pressed; a single time if asked to, or where nothing can be redrawn."""
    watched = Watched(run_directory)
    with suppress(KeyboardInterrupt):
        picture = watched.look()
        if console.is_interactive and not once and not watched.over:
            picture = _follow(watched, picture, console)
        console.print(picture)


def _follow(watched: Watched, picture: Picture, console: Console) -> Picture:
    """Redraw the picture until the run has ended; the last picture."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        over = False
        while not over:
            live.update(replace(picture, fitted=True), refresh=True)
            time.sleep(EVERY_SECONDS)
            # One more look after the end: other processes may have a word to say about it.
            over, picture = watched.over, watched.look()
    return picture


class Watched:
    """A run's directory, looked at again and again."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            what = "a file, not a run's directory" if directory.exists() else "no such directory"
            raise TandemError(f"{directory}: {what}; give the --run of `tandem train`")
        if not any((directory / sign).exists() for sign in SIGNS_OF_A_RUN):
            raise TandemError(f"{directory}: not a run (it has no {JOURNALS}); give the --run of `tandem train`")
        self._directory = directory
        # A picture shows the present of the hosts, not the day of samples before it.
        self._journals = Followed(directory / JOURNALS, newest_only=(Sampled.kind, Surveyed.kind))
        self._state = RunState()
        self._looked = False

    @property
    def over(self) -> bool:
        return self._state.session is not None and self._state.session.ended is not None

    def look(self) -> Picture:
        """Read what is new; what the run looks like now."""
        news = False
        for rank, line in self._journals.news():
            news = True
            self._state.take(rank, line)
        now = time.time()
        if news and self._looked:
            # Whoever writes may have another clock; that something has come is seen on this one.
            self._state.heard = now
        self._looked = True
        return Picture(str(self._directory), self._state, now, self._evaluate_every())

    def _evaluate_every(self) -> int | None:
        """After how many steps the run evaluates, where its settings are on this host."""
        try:
            return load_saved(self._directory / "config.yaml").evaluation.every_steps
        except (TandemError, OSError):
            return None
