"""One command from one machine: start a run's processes on all hosts over ssh, and end them together."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TextIO

from tandem.cluster.join.launchers import HOSTS_VARIABLE, LAUNCH_ID_VARIABLE
from tandem.cluster.launch.remote_host import ALIVE, GRACE_SECONDS, SILENCE_SECONDS, STOP, HostFacts, HostJob
from tandem.cluster.source_version import package_version
from tandem.errors import TandemError
from tandem.monitor.network_interfaces import host_name, interfaces
from tandem.process_exit import SIGNALLED, is_stop_code

# What a user may have set here to steer the libraries underneath or to find extensions, and wants on all hosts.
FORWARDED = ("OMP_", "MKL_", "NCCL_", "GLOO_", "CUDA_", "TORCH_", "PYTHONPATH")
# ssh's own exit code, when it was not the remote command that failed.
SSH_FAILED = 255
# Never ask for a password, and notice within half a minute that a host or the way to it is gone.
SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3")


@dataclass(frozen=True)
class LaunchHost:
    """A machine to start processes on, and how many."""

    name: str
    processes: int

    @property
    def here(self) -> bool:
        """Whether it is this machine, which needs no ssh."""
        return self.name in {"localhost", host_name(), *(interface.address for interface in interfaces())}


@dataclass(frozen=True)
class LaunchOrder:
    """A command to start on several hosts, and how they are reached."""

    hosts: Sequence[LaunchHost]
    arguments: Sequence[str]
    """The `tandem` command that every process runs."""
    corpus: Path | None
    """The corpus that the command reads; it must be the same on all hosts."""
    as_json: bool
    """Whether a program reads the command's answer, so that no host's name may stand before it."""
    ssh: Sequence[str]
    port: int | None
    address: str | None
    join_seconds: int


def launch(order: LaunchOrder) -> int:
    """Check all hosts, start everything, wait; the exit code of the first that failed, 0 if none did."""
    return asyncio.run(_launch(order))


async def _launch(order: LaunchOrder) -> int:
    facts = await _inspect_hosts(order)
    _check_alike(order, facts)
    hosts = order.hosts
    named = ",".join(
        f"[{host.name}]:{host.processes}" if ":" in host.name else f"{host.name}:{host.processes}" for host in hosts
    )
    forwarded = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
    identity = {HOSTS_VARIABLE: named, LAUNCH_ID_VARIABLE: secrets.token_hex(8)}
    first_ranks = [0, *accumulate(host.processes for host in hosts)]
    connections = []
    for host, first_rank in zip(hosts, first_ranks, strict=False):
        processes = HostJob(
            first_rank=first_rank,
            count=host.processes,
            world_size=first_ranks[-1],
            address=order.address or _meeting_address(order, facts),
            port=order.port or facts[0].free_port,
            arguments=list(order.arguments),
            environment={**forwarded, **identity},
        )
        process = await _run(order.ssh, host, {"run": asdict(processes)}, stdin=PIPE)
        connections.append(HostConnection(host.name, process, prefix_output=not order.as_json))
    async with _control(connections):
        return await _first_failure(connections)


class HostConnection:
    """The connection to a host at work: what it prints, its exit code, and the words sent to it."""

    def __init__(self, name: str, process: Process, prefix_output: bool) -> None:
        self._name, self._process, self._prefix_output = name, process, prefix_output
        self.muted = False
        """Show no more but errors: the rest only follows from what has happened elsewhere."""

    async def exit_code(self) -> int:
        """Show what the host prints until it ends; its exit code."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        prefix = f"[{self._name}] "
        await asyncio.gather(
            self._show(self._process.stdout, sys.stdout, prefix if self._prefix_output else ""),
            self._show(self._process.stderr, sys.stderr, prefix),
        )
        code = await self._process.wait()
        if code == SSH_FAILED:
            print(f"tandem: lost the connection to {self._name}", file=sys.stderr)
        return code if code >= 0 else SIGNALLED - code

    async def _show(self, stream: asyncio.StreamReader, target: TextIO, prefix: str) -> None:
        while line := await stream.readline():
            text = line.decode("utf-8", errors="replace").rstrip("\n")
            if not self.muted or text.startswith("tandem: "):
                print(f"{prefix}{text}", file=target, flush=True)

    def send(self, word: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(f"{word}\n".encode())

    async def close(self) -> None:
        """Let go of the host: it ends what it has started, or is cut off."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            # Twice: for its processes to end when asked to, and for it to see to the rest.
            await asyncio.wait_for(self._process.wait(), 2 * GRACE_SECONDS)
        except TimeoutError:
            self._process.kill()


async def _first_failure(connections: Sequence[HostConnection]) -> int:
    """The exit code of the first host that fails, upon which all are ended; 0 when all have ended well."""
    first = 0
    for ended in asyncio.as_completed([connection.exit_code() for connection in connections]):
        code = await ended
        if code and not first:
            first = code
            if is_stop_code(code):
                # All were asked to stop, and do so by themselves.
                continue
            for connection in connections:
                connection.muted = True
            await _close(connections)
    return first


async def _close(connections: Sequence[HostConnection]) -> None:
    await asyncio.gather(*(connection.close() for connection in connections))


@asynccontextmanager
async def _control(connections: Sequence[HostConnection]) -> AsyncIterator[None]:
    """Keep in touch with all hosts, which end when they hear nothing, and pass on the user's wish to stop.

    The first Ctrl-C or SIGTERM asks all hosts to save and stop, the second one ends them at once.
    """
    loop, asked, tasks = asyncio.get_running_loop(), False, set[asyncio.Task[None]]()

    async def keep_in_touch() -> None:
        while True:
            await asyncio.sleep(SILENCE_SECONDS / 4)
            for connection in connections:
                connection.send(ALIVE)

    def on_signal() -> None:
        nonlocal asked
        if asked:
            print("tandem: ending all hosts at once; started again, the run goes on from its newest checkpoint")
            tasks.add(asyncio.create_task(_close(connections)))
        else:
            print("tandem: asking all hosts to save and stop; once more to end them at once", file=sys.stderr)
            for connection in connections:
                connection.send(STOP)
        asked = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    touch = asyncio.create_task(keep_in_touch())
    try:
        yield
    finally:
        touch.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await asyncio.gather(_close(connections), *tasks)


async def _run(ssh: Sequence[str], host: LaunchHost, order: dict[str, Any], stdin: int) -> Process:
    """Start this package's remote part on a host, in the same directory and with the same Python as here."""
    command = [sys.executable, "-m", "tandem.cluster.launch.remote_host", json.dumps(order)]
    if not host.here:
        there = f"cd {shlex.quote(str(Path.cwd()))} && exec {shlex.join(command)}"
        options = [part for option in SSH_OPTIONS for part in ("-o", option)]
        command = [*ssh, "-T", *options, host.name, there]
    # A session of its own, because Ctrl-C reaches everything in the terminal's, and ssh would just hang up.
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=stdin, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=2**20
        )
    except FileNotFoundError as error:
        raise TandemError(f"--ssh {ssh[0]}: there is no such program; install it or name another") from error


async def _inspect_hosts(order: LaunchOrder) -> list[HostFacts]:
    """The facts about every host; all that cannot be used are named at once."""
    inspections = [_inspect(order, host, order.port if not node else None) for node, host in enumerate(order.hosts)]
    facts, faults = [], []
    for answer in await asyncio.gather(*inspections, return_exceptions=True):
        if isinstance(answer, HostFacts):
            facts.append(answer)
        elif isinstance(answer, TandemError):
            faults.append(str(answer))
        else:
            raise answer
    if faults:
        raise TandemError("; ".join(faults))
    return facts


async def _inspect(order: LaunchOrder, host: LaunchHost, port: int | None) -> HostFacts:
    corpus = None if order.corpus is None else str(order.corpus)
    process = await _run(order.ssh, host, {"inspect": {"corpus": corpus, "port": port}}, stdin=DEVNULL)
    try:
        out, err = await asyncio.wait_for(process.communicate(), order.join_seconds)
    except TimeoutError as error:
        process.kill()
        raise TandemError(f"{host.name}: no answer within {order.join_seconds} s; is it overloaded?") from error
    last_line = (err.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    if process.returncode == SSH_FAILED and not host.here:
        raise TandemError(f"{host.name}: {last_line}; make sure that `{shlex.join(order.ssh)} {host.name} true` works")
    if process.returncode:
        raise TandemError(f"{host.name}: {last_line}; install Tandem there as here ({sys.executable} in {Path.cwd()})")
    # Whatever a login script prints comes before.
    try:
        facts = HostFacts(**json.loads(out.decode().strip().splitlines()[-1]))
    except (ValueError, TypeError, IndexError) as error:
        raise TandemError(f"{host.name}: has another version of Tandem; install the same everywhere") from error
    if facts.fault is not None:
        raise TandemError(f"{host.name}: {facts.fault}")
    return facts


def _check_alike(order: LaunchOrder, facts: Sequence[HostFacts]) -> None:
    """Insist on one version of the package and one corpus everywhere."""
    digests = [str(fact.corpus_digest)[:12] for fact in facts]
    corpus = f"{order.corpus} on {order.hosts[0].name} is corpus"
    for what, wanted, found, remedy in (
        ("here is", package_version(), [fact.version for fact in facts], "install the same everywhere"),
        (corpus, digests[0], digests, "copy one of them to all hosts"),
    ):
        others = [f"{host.name} has {value}" for host, value in zip(order.hosts, found, strict=True) if value != wanted]
        if others:
            raise TandemError(f"{what} {wanted}, but {', '.join(others)}; {remedy}")


def _meeting_address(order: LaunchOrder, facts: Sequence[HostFacts]) -> str:
    """The first host's address, as the network between the hosts knows it."""
    if not order.hosts[0].here:
        if facts[0].own_address is None:
            raise TandemError(f"{order.hosts[0].name}: its ssh server does not tell its address; give --address")
        return facts[0].own_address
    # This machine is the first host: the others have seen where the launcher's connection came from.
    return next((fact.launcher_address for fact in facts if fact.launcher_address is not None), "127.0.0.1")
