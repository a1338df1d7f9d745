"""A terminal on a host of the rig: a shell that remembers directory, environment and jobs from command to command."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

import psutil

from testbed.network_rig import Host, Rig

# Nothing of this process's environment: what a command needs is what the machine has, or was typed before.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    # Other tests run beside this one: threads that wait for each other must not burn the processor meanwhile.
    "OMP_WAIT_POLICY": "PASSIVE",
}
ENDED = "terminal: ended with"


class Terminal:
    """A shell in the home directory of a bare host; what it prints is collected, standard error included."""

    def __init__(self, rig: Rig, host: Host) -> None:
        environment = [f"{name}={value}" for name, value in {**ENVIRONMENT, "HOME": str(host.home)}.items()]
        self._shell = rig.run(
            host,
            ["env", "-i", "-C", str(host.home), *environment, "bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def type(self, command: str, interrupt_at: Callable[[str], bool] | None = None) -> tuple[int, list[str]]:
        """Exit code and printed lines of a command; Ctrl-C is pressed at the first line that says so."""
        # Commands read nothing of what is typed later; the empty line is for output without a newline at its end.
        self._say(f"{{ {command}\n}} < /dev/null; ended=$?; echo; echo '{ENDED}' $ended")
        assert self._shell.stdout is not None
        printed: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(ENDED):
                return int(line.removeprefix(ENDED)), printed[:-1] if printed[-1] == "" else printed
            printed.append(line.rstrip("\n"))
            if interrupt_at and interrupt_at(printed[-1]):
                interrupt_at = None
                self._interrupt()
        raise EOFError(f"the shell has ended below {command!r}: {printed}")

    def _say(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\n")
        self._shell.stdin.flush()

    def _interrupt(self) -> None:
        """Send SIGINT to the foreground job, as Ctrl-C does: to the shell's youngest child and all in its group."""
        job = max(psutil.Process(self._shell.pid).children(), key=lambda job: (job.create_time(), job.pid))
        # The shell makes no groups: with job control it would take a job that somebody pauses for one that is over.
        for process in [job, *job.children(recursive=True)]:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) == self._shell.pid:
                    process.send_signal(signal.SIGINT)
