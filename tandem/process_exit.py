"""How processes end: exit codes, and an end that PyTorch's threads cannot disturb."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

SIGNALLED = 128
"""Added to a signal's number, this is a shell's exit code for a process ended by it."""
LOST_PEER_CODE = os.EX_TEMPFAIL
"""Exit code of a process that ended because another one is gone: started again, the same command may well succeed."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""Signals that ask a training to save and stop: Ctrl-C, launchers and preemption, Slurm, a closed terminal."""


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
        sys.stderr.flush()
    os._exit(code)


def ignore_sigterm() -> None:
    """Ignore SIGTERM for the rest of this process, which is about to end and has yet to say why.

    A launcher sends it to all as soon as one process has ended, and those that have nothing to say end first.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
