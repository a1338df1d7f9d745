"""The connection to a host: starts the agent there over ssh, sends it orders, shows what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tandem.cluster.launch.launch_order import LaunchHost
from tandem.cluster.launch.remote_host import GRACE_SECONDS, REPORT_MARK
from tandem.cluster.launch.restart_policy import SSH_FAILED, HostEnding, HostReport
from tandem.errors import TandemError
from tandem.process_exit import SIGNALLED
from tandem.ssh import SSH_OPTIONS

# Runs a command and returns its exit code, also if a signal has ended it, of which ssh itself does not tell; what the
# shell says to that goes nowhere.
CODE_KEEPER = 'exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; exit $?'


async def start_agent(ssh: Sequence[str], host: LaunchHost, order: dict[str, Any]) -> Process:
    """Start this package's agent on a host, in the same directory and with the same Python as here, and send an order.

    The order goes over standard input, which stays open.
    """
    command = [sys.executable, "-m", "tandem.cluster.launch.remote_host"]
    if not host.here:
        kept = shlex.join(["sh", "-c", CODE_KEEPER, "sh", *command])
        there = f"cd {shlex.quote(str(Path.cwd()))} && exec {kept}"
        command = [*ssh, "-T", *SSH_OPTIONS, host.name, there]
    # A session of its own, because Ctrl-C reaches everything in the terminal's, and ssh would just hang up.
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=2**20
        )
    except FileNotFoundError as error:
        raise TandemError(f"--ssh {ssh[0]}: there is no such program; install it or name another") from error
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    return process


class HostConnection:
    """The connection to a host at work: what it prints, how it ends, and the words sent to it."""

    def __init__(self, host: LaunchHost, process: Process, prefix_output: bool) -> None:
        self.host, self._process, self._prefix_output = host, process, prefix_output
        self._report: HostReport | None = None
        self._cut_off = False
        self.muted = False
        """Show no more but errors: the rest only follows from what has happened elsewhere."""

    async def ending(self) -> HostEnding:
        """Show what the host prints until it ends; how it ended."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        prefix = f"[{self.host.name}] "
        await asyncio.gather(
            self._show(self._process.stdout, sys.stdout, prefix if self._prefix_output else ""),
            self._show(self._process.stderr, sys.stderr, prefix),
        )
        code = await self._process.wait()
        if self._cut_off:
            code = SSH_FAILED
        return HostEnding.of(self.host.name, code if code >= 0 else SIGNALLED - code, self._report)

    async def _show(self, stream: asyncio.StreamReader, target: TextIO, prefix: str) -> None:
        while line := await stream.readline():
            text, mark, report = line.decode("utf-8", errors="replace").rstrip("\n").partition(REPORT_MARK)
            if mark:
                self._report = HostReport(**json.loads(report))
            told = text.startswith("tandem: ") and not text.startswith("tandem: stopped by ")
            if (text or not mark) and (not self.muted or told):
                print(f"{prefix}{text}", file=target, flush=True)

    def send(self, word: str) -> None:
        """Say a word to the agent; one that is gone does not hear it."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(f"{word}\n".encode())

    async def close(self, seconds: float) -> None:
        """Let go of the host: its processes get so many seconds to save and stop, then it is cut off."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        # Twice: for the agent to end what does not end by itself, and for it to end.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds + 2 * GRACE_SECONDS)
            return
        self._cut_off = True
        self._process.kill()
