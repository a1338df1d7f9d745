"""Notices of preemption: a command of the user's that waits for the cloud to say that this machine will be taken."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tandem.errors import TandemError
from tandem.process_exit import signal_after_parent


def preemption_command(setting: str | Sequence[str] | None) -> list[str] | None:
    """The command of a setting, without a shell; a program that is not here is an error."""
    if setting is None:
        return None
    try:
        command = shlex.split(setting) if isinstance(setting, str) else list(setting)
    except ValueError as error:
        raise TandemError(f"train.on_preemption_notice: {error}; mend the quotes in {setting}") from error
    if not command or shutil.which(command[0]) is None:
        missing = command[0] if command else "it"
        raise TandemError(
            f"train.on_preemption_notice: there is no program {missing} on this host; install it, or name another"
        )
    return command


@contextmanager
def stopping_on_notice(command: Sequence[str] | None, notice: Callable[[str], None]) -> Iterator[None]:
    """Run a command beside a training; when it ends well, that is a SIGUSR1 to this process.

    Not a SIGTERM, which asks for an end: whoever supervises the run is to start it again, without the lost machine.
    """
    if command is None:
        yield
        return
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A group of its own, with which whatever it starts can be ended.
        process_group=0,
        # It must not outlive a training that is killed.
        preexec_fn=signal_after_parent(signal.SIGKILL),
    )
    over = threading.Event()

    def watch() -> None:
        code = process.wait()
        if over.is_set():
            return
        if code == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        else:
            what = f"exit code {code}" if code > 0 else signal.Signals(-code).name
            notice(f"the command of train.on_preemption_notice has ended ({what}): notices are not heard any more")

    watching = threading.Thread(target=watch, name="preemption-notice", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        watching.join()
