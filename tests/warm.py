"""Processes that start without the seconds in which Python imports PyTorch; else they are what subprocess starts.

A warm process has imported most of Tandem: a test of imports, or of what Python or the system's loader do with the
environment, starts its processes by `subprocess` instead.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.places import REPOSITORY


class WarmProcess(subprocess.Popen[str]):
    """A process of Python, forked by the warm server that all tests of a process share, or by another one."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        by: socket.socket | None = None,
        **options: Any,
    ) -> None:
        self._server = by or warm_server()
        super().__init__([os.fspath(word) for word in command], env=dict(env or os.environ), text=True, **options)

    # Popen makes pipes and reads them; this, which is all that differs, has the arguments that Popen gives it.
    def _execute_child(
        self, args: list[str], executable: object, preexec: object, close: object, keep: object, cwd: Path | None,
        env: dict[str, str], startup: object, flags: object, shell: object, stdin: int, to_stdin: int,
        from_stdout: int, stdout: int, from_stderr: int, stderr: int, *_: object,
    ) -> None:  # fmt: skip
        program, *arguments = args
        assert program == sys.executable
        request = {"arguments": arguments, "environment": env, "directory": os.fspath(cwd or Path.cwd())}
        standard = [number if given == -1 else given for number, given in enumerate((stdin, stdout, stderr))]
        self._answers, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answering:
            socket.send_fds(self._server, [json.dumps(request).encode()], [*standard, answering.fileno()])
        self._close_pipe_fds(stdin, to_stdin, from_stdout, stdout, from_stderr, stderr)  # type: ignore[attr-defined]
        self.pid = int(self._answers.recv(32))
        self._child_created = True

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended, _, _ = select.select([self._answers], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._answers.recv(32))
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


def run(
    command: Sequence[str | Path],
    *,
    input: str | None = None,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """The same as subprocess.run, with what is printed: a warm process from its start to its end."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    with WarmProcess(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, err)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@cache
def warm_server(first: str = "tandem") -> socket.socket:
    """The way to a process that starts others and has imported this module before all else; it ends with this one."""
    return start_server(first)


def start_server(first: str, inside: Sequence[str] = ()) -> socket.socket:
    """Start such a process, perhaps inside a command that ends with another one; it ends when the socket is closed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        number = there.fileno()
        command = [*inside, sys.executable, "-m", "tests.warm_server", str(number), first]
        # The command line sets it, too, before it imports PyTorch; forks have their own standard output and error.
        quiet = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}
        subprocess.Popen(command, cwd=REPOSITORY, env=quiet, stdin=subprocess.DEVNULL, pass_fds=[number])
    return here
