"""Requests to stop that come as signals, heard by a thread of their own whatever the main thread waits for.

Python runs a signal's handler in the main thread, between two of its instructions: never while that thread sits in
gloo, in PyTorch's store or in a write that does not come back. But Python's own C code writes the number of each signal
to a descriptor at once (`signal.set_wakeup_fd`). A thread reads it there, and answers by the plan in force: by default
an interrupt of the main thread, in a training the wish to save and stop.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeAlias

from tandem.process_exit import LOST_PEER_CODE, STOP_SIGNALS, say, stop_code

# A main thread that has not come to the handler by then sits in a call that no signal ends.
STUCK_SECONDS = 2.0
# Longest time for what a command cleans up: temporary files, processes that work for it.
CLEAN_UP_SECONDS = 20.0
# Beside numbers of signals, what the main thread tells the listener: a plan begins, a plan is over.
_BEGINS, _OVER = b"\xfe", b"\xff"
# `timeout` and a terminal's Ctrl-C reach a process directly and through its launcher: that is one request, not two.
_TOGETHER_SECONDS = 0.25
_SHOW_CURSOR = "\x1b[?25h"

Wait: TypeAlias = Callable[[float], int | None]
"""Waits so many seconds for another signal, and returns its number; None if none came."""


class SignalPlan(ABC):
    """How a process answers signals that ask it to stop."""

    @abstractmethod
    def answer(self, number: int, wait: Wait) -> None:
        """Answer the first signal, and stay until the process ends; runs in the listening thread."""


class Interrupt(SignalPlan):
    """Interrupt the main thread, which cleans up and ends; if it does not come to that, or is asked twice, end it."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()
        """Whether the main thread has been interrupted."""

    def answer(self, number: int, wait: Wait) -> None:
        again = wait(STUCK_SECONDS)
        if again is None and self.interrupted.is_set():
            wait(CLEAN_UP_SECONDS)
        end_by(number, f"stopped by {signal.Signals(number).name}")


class EndAtOnce(SignalPlan):
    """End the process, whatever its main thread is at: nothing of it has to be cleaned up."""

    def answer(self, number: int, wait: Wait) -> None:
        end_by(number, f"stopped by {signal.Signals(number).name}")


class _PlanChangedError(Exception):
    """The main thread has begun or ended a plan while the listener answered by another."""


class SignalListener:
    """Handlers for all signals that ask to stop, and the thread that hears them."""

    def __init__(self) -> None:
        self.heard: int | None = None
        """The first signal that came."""
        self.speaks = True
        """Whether this process tells the user that it was stopped; of those on a host one does."""
        self._plan: SignalPlan = Interrupt()
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._before: dict[signal.Signals, object] = {}
        self._wakeup_before = -1
        self._held_back: set[int] = set()
        """Signals that were blocked before."""
        self._heard_at = -math.inf

    def install(self) -> None:
        """Begin to hear signals; only the main thread may."""
        for number in STOP_SIGNALS:
            # nohup starts programs so that a closed terminal does not end them.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        self._wakeup_before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._held_back = signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(STOP_SIGNALS)
        try:
            # Whoever has started this process may hold them back until now; one that has come interrupts here.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        finally:
            # Only now: a thread, and what it starts, has the blocked signals of the thread that began it.
            threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def uninstall(self) -> None:
        """Leave signals to whoever had them before."""
        # First, so that what comes from here on waits for whoever held it back.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._held_back)
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)  # type: ignore[arg-type]
        # The listener reads the end of the stream and ends.
        self._sender.close()

    def stop_interrupting(self) -> bool:
        """Interrupt the main thread no more, because it is about to end; whether it has been interrupted before."""
        interrupt, before = Interrupt(), self._plan
        interrupt.interrupted.set()
        self._plan = interrupt
        return isinstance(before, Interrupt) and before.interrupted.is_set()

    @contextmanager
    def answering(self, plan: SignalPlan) -> Iterator[None]:
        """Answer signals by a plan while the block lasts."""
        before, self._plan = self._plan, plan
        self._sender.send(_BEGINS)
        try:
            yield
        finally:
            self._plan = before
            self._sender.send(_OVER)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Python's handler, in the main thread, some time after the listener has heard of the signal."""
        if isinstance(self._plan, Interrupt) and not self._plan.interrupted.is_set():
            self.heard = self.heard or number
            self._plan.interrupted.set()
            raise KeyboardInterrupt

    def _listen(self) -> None:
        with suppress(EOFError), self._receiver:
            while True:
                with suppress(_PlanChangedError):
                    self._answer(self._next(None))

    def _answer(self, number: int) -> None:
        self.heard = self.heard or number
        while True:
            try:
                self._plan.answer(number, self._next_within)
                return
            except _PlanChangedError as change:
                # What came just before a plan began is answered by it; what comes after its end, by the one before.
                if change.args != (_BEGINS,):
                    return

    def _next_within(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with suppress(TimeoutError):
                return self._next(left)
        return None

    def _next(self, seconds: float | None) -> int:
        """The next signal that is ours to answer: a server or a launcher may have handlers of its own."""
        while True:
            self._receiver.settimeout(seconds)
            byte = self._receiver.recv(1)
            if not byte:
                raise EOFError
            if byte in (_BEGINS, _OVER):
                raise _PlanChangedError(byte)
            ours, together = signal.getsignal(byte[0]) == self._handle, self._heard_at + _TOGETHER_SECONDS
            if ours and time.monotonic() > together:
                self._heard_at = time.monotonic()
                return byte[0]

    def forget(self) -> None:
        """Undo what a forked process has inherited: its signals are not this process's."""
        signal.set_wakeup_fd(-1)
        for number in self._before:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)


_listener: SignalListener | None = None
"""The listener of a process that is Tandem's own; a program that only imports Tandem keeps its signals."""


def listen() -> SignalListener:
    """Hear signals from now on until the process ends."""
    global _listener
    if _listener is None:
        _listener = SignalListener()
        _listener.install()
    return _listener


def _before_fork() -> None:
    # Until the new process has let go of the descriptor, its signals would be taken for this one's.
    if _listener is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _after_fork() -> None:
    if _listener is not None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _after_fork_in_child() -> None:
    global _listener
    if _listener is not None:
        _listener.forget()
        _listener = None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


@contextmanager
def answering(plan: SignalPlan) -> Iterator[None]:
    """Answer signals by a plan while the block lasts: in a process of Tandem's own, or in another's main thread."""
    global _listener
    borrowed = _listener is None
    if borrowed and threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        with listen().answering(plan):
            yield
    finally:
        # Also after a signal that was held back has interrupted `listen`.
        if borrowed and _listener is not None:
            listener, _listener = _listener, None
            listener.uninstall()


@contextmanager
def not_interrupted() -> Iterator[None]:
    """End at once by signals while the block lasts, if this process is Tandem's own: its code bears no interrupt."""
    if _listener is None:
        yield
        return
    with _listener.answering(EndAtOnce()):
        yield


def heard_signal() -> signal.Signals:
    """The signal that interrupted this process; SIGINT, if whoever calls has not let us listen."""
    heard = None if _listener is None else _listener.heard
    return signal.SIGINT if heard is None else signal.Signals(heard)


def lost_peer_code() -> int:
    """The exit code of a process that has lost another: its signal's, if all were asked to stop and one was faster."""
    asked = _listener is not None and _listener.heard is not None
    return stop_code(heard_signal()) if asked else LOST_PEER_CODE


def say_stopped() -> None:
    """Tell the user by which signal a process was interrupted, if this is the one to speak."""
    if _listener is None or _listener.speaks:
        say(f"stopped by {heard_signal().name}")


def end_by(number: int, sentence: str) -> NoReturn:
    """End the process at once, from any thread, with the exit code that stands for a signal."""
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        # A progress bar that could not be taken down may have hidden it.
        sentence = f"{_SHOW_CURSOR}{sentence}"
    if _listener is None or _listener.speaks:
        say(sentence)
    os._exit(stop_code(number))
