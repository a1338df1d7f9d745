"""A view in a thread of its own: one that is slow, hangs or raises costs the training nothing."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.records import Record
from tandem.monitor.views import MakeView, View, switched_off
from tandem.registry import VIEWS

# Records that wait at most: those of hours, as there is one every second.
WAITING_RECORDS = 10_000
# A view that works on one record for so long is told of.
SLOW_SECONDS = 60.0
# Longest wait for what still waits when a process ends.
CLOSE_SECONDS = 10.0

Tell = Callable[[View], None]


class BackgroundView(View):
    """Hands records to a view that is made, shown all of them and closed in a thread.

    A view that raises is switched off until the run is started again. What one that hangs was not shown in time is
    lost to it. Both are said once, through `pop_trouble`.
    """

    def __init__(self, name: str, make: Callable[[], View]) -> None:
        self._name, self._make = name, make
        self._waiting: deque[Tell] = deque()
        self._lost = 0
        """Records that found no room since one was last shown."""
        # Making it may take long, too.
        self._busy_since: float | None = time.monotonic()
        self._over = self._told_slow = False
        self._close_by = math.inf
        self._troubles: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"view {name}", daemon=True)
        self._thread.start()

    def show(self, record: Record) -> None:
        with self._changed:
            if len(self._waiting) < WAITING_RECORDS:
                self._append(lambda view: view.show(record))
            elif not self._over:
                self._lost += 1

    def stepped(self, step: int) -> None:
        self._hand_if_idle(lambda view: view.stepped(step))

    def working(self, stage: str, done: int, total: int) -> None:
        self._hand_if_idle(lambda view: view.working(stage, done, total))

    def pop_trouble(self) -> str:
        with self._changed:
            busy = 0.0 if self._busy_since is None else time.monotonic() - self._busy_since
            if busy > SLOW_SECONDS and not self._told_slow:
                self._told_slow = True
                self._troubles.append(f"the view {self._name} hangs; the training goes on, and its records wait")
            trouble, self._troubles = "; ".join(self._troubles), []
            return trouble

    def begin_close(self) -> None:
        """Have the view closed as soon as everything is shown; the seconds that it has for that begin now."""
        with self._changed:
            self._over = True
            self._close_by = min(self._close_by, time.monotonic() + CLOSE_SECONDS)
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until everything is shown, for some seconds at most; what hangs is left to itself."""
        self.begin_close()
        self._thread.join(max(self._close_by - time.monotonic(), 0.0))
        with self._changed:
            if self._thread.is_alive():
                unseen = len(self._waiting) + self._lost
                self._waiting.clear()
                self._troubles.append(
                    f"the view {self._name} did not finish within {CLOSE_SECONDS:.0f} s and is left behind; "
                    f"{unseen:,} records wait that it was not shown"
                )

    def _hand_if_idle(self, tell: Tell) -> None:
        """Show what is of interest only now; a view that is at something else misses it."""
        with self._changed:
            if self._busy_since is None and not self._waiting:
                self._append(tell)

    def _append(self, tell: Tell) -> None:
        if not self._over:
            self._waiting.append(tell)
            self._changed.notify_all()

    def _run(self) -> None:
        view: View | None = None
        try:
            view = self._make()
            while (tell := self._next()) is not None:
                tell(view)
                self._note(view.pop_trouble())
            view.close()
            self._note(view.pop_trouble())
        except (Exception, SystemExit) as error:  # whatever a view, or the library that it uses, raises
            self._note(switched_off(self._name, error))
            if view is not None:
                with suppress(Exception):
                    view.close()
        finally:
            with self._changed:
                self._over, self._busy_since = True, None
                self._waiting.clear()

    def _next(self) -> Tell | None:
        """What to do next, as soon as there is something; None at the end."""
        with self._changed:
            self._busy_since, self._told_slow = None, False
            while not self._waiting and not self._over:
                self._changed.wait()
            if self._lost and len(self._waiting) < WAITING_RECORDS:
                self._troubles.append(f"the view {self._name} goes on; it was not shown {self._lost:,} records")
                self._lost = 0
            self._busy_since = time.monotonic()
            return self._waiting.popleft() if self._waiting else None

    def _note(self, trouble: str) -> None:
        if trouble:
            with self._changed:
                self._troubles.append(trouble)


def open_views(run: RunPaths, config: Config) -> list[View]:
    """The views that the setting `monitor.views` names; one whose library is not installed is an error at once."""
    makers: dict[str, MakeView] = {name: VIEWS.get(name) for name in config.monitor.views}
    return [BackgroundView(name, partial(make, run, config)) for name, make in makers.items()]
