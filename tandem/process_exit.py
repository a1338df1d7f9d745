"""How processes end: exit codes, an end that PyTorch's threads cannot disturb, and one together with the parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

SIGNALLED = 128
"""Added to a signal's number, this is a shell's exit code for a process ended by it."""
LOST_PEER_CODE = os.EX_TEMPFAIL
"""Exit code of a process that ended because another one is gone: started again, the same command may well succeed."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""Signals that ask a training to save and stop: Ctrl-C, launchers, Slurm and preemption notices, a closed terminal."""
# prctl's number for "send me a signal when my parent dies" (Linux).
_PR_SET_PDEATHSIG = 1
# Longest wait of a process that ends for a terminal that does not take its last sentence.
SAY_SECONDS = 1.0


def stop_code(number: int) -> int:
    """The exit code of a training that was asked to stop by a signal, as shells count it: 130 for Ctrl-C."""
    return SIGNALLED + number


def is_stop_code(code: int) -> bool:
    """Whether an exit code is that of a training that was asked to stop, and has."""
    return code - SIGNALLED in STOP_SIGNALS


def end_process(code: int = 0) -> NoReturn:
    """End at once, without taking down Python or the process groups.

    gloo's threads may still be letting go of the last tensors or connections. If Python or the group is taken down
    at that moment the process aborts, and work that has ended well looks like a crash (one process of a hundred).
    """
    # Whoever read the output may have seen enough of it.
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    within(SAY_SECONDS, _flush_stderr)
    os._exit(code)


def within(seconds: float, action: Callable[[], object]) -> bool:
    """Run an action in a thread, and leave it to itself if it takes longer than so many seconds; whether it is done."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def say(sentence: str) -> None:
    """Print a sentence for the user to standard error; a terminal that nobody reads loses it and holds up nothing."""

    def write() -> None:
        with suppress(OSError):
            print(f"tandem: {sentence}", file=sys.stderr, flush=True)

    within(SAY_SECONDS, write)


def _flush_stderr() -> None:
    with suppress(OSError):
        sys.stderr.flush()


def signal_after_parent(number: signal.Signals) -> Callable[[], None]:
    """What a new process calls to have the kernel send it a signal when the process that started it dies."""
    # Loaded before the fork: the new process may find the loader's lock taken.
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, number)


def ignore_sigterm() -> None:
    """Ignore SIGTERM for the rest of this process, which is about to end and has yet to say why.

    A launcher sends it to all as soon as one process has ended, and those that have nothing to say end first.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
