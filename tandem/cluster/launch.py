"""One command from one machine: start a run's processes on all hosts over ssh, and end them together."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from tandem.cluster.launchers import HOSTS_VARIABLE
from tandem.cluster.network import host_name, interfaces
from tandem.cluster.remote import ALIVE, GRACE_SECONDS, SIGNALLED, SILENCE_SECONDS, STOP, Facts, Work
from tandem.cluster.version import package_version
from tandem.errors import TandemError

# What a user may have set here to steer the libraries underneath, and wants on all hosts.
FORWARDED = ("OMP_", "MKL_", "NCCL_", "GLOO_", "CUDA_", "TORCH_")
# ssh's own exit code, when it was not the remote command that failed.
SSH_FAILED = 255
# Never ask for a password, and notice within half a minute that a host or the way to it is gone.
SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3")


@dataclass(frozen=True)
class Host:
    """A machine to work on, and how many processes it gets."""

    name: str
    processes: int

    @property
    def here(self) -> bool:
        """Whether it is this machine, which needs no ssh."""
        own = {"localhost", host_name(), *(interface.address for interface in interfaces())}
        return self.name in own


@dataclass(frozen=True)
class Launch:
    """What to start, and how the hosts are reached."""

    hosts: Sequence[Host]
    arguments: Sequence[str]
    """Of the `tandem` command that every process runs."""
    ssh: Sequence[str]
    port: int | None
    address: str | None
    join_seconds: int

    @property
    def corpus(self) -> str | None:
        """The corpus named among the arguments."""
        for position, argument in enumerate(self.arguments):
            if argument.startswith("--corpus="):
                return argument.removeprefix("--corpus=")
            if argument == "--corpus" and position + 1 < len(self.arguments):
                return self.arguments[position + 1]
        return None


def launch(order: Launch) -> int:
    """Check all hosts, start everything, wait; the exit code of the first that failed, 0 if none did."""
    return asyncio.run(_launch(order))


async def _launch(order: Launch) -> int:
    facts = await _look_at_hosts(order)
    _check_alike(order, facts)
    address, port = order.address or _meeting_address(order, facts), order.port or facts[0].free_port
    forwarded = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
    hosts_text = ",".join(
        f"[{host.name}]:{host.processes}" if ":" in host.name else f"{host.name}:{host.processes}"
        for host in order.hosts
    )
    works = [
        Work(
            node=node,
            nodes=len(order.hosts),
            processes=host.processes,
            address=address,
            port=port,
            arguments=list(order.arguments),
            join_seconds=order.join_seconds,
            environment={**forwarded, HOSTS_VARIABLE: hosts_text},
        )
        for node, host in enumerate(order.hosts)
    ]
    workers = [
        Worker(host.name, await _run(order.ssh, host, {"work": asdict(details)}, stdin=PIPE))
        for host, details in zip(order.hosts, works, strict=True)
    ]
    if "--json" in order.arguments:
        for worker in workers:
            worker.speak_plainly()
    async with _stopping_on_request(workers), _staying_in_touch(workers):
        return await _first_failure(workers)


class Worker:
    """A host at work, seen through the connection to it."""

    def __init__(self, name: str, process: Process) -> None:
        self.name, self._process, self._muted = name, process, False
        self._prefix = f"[{name}] "

    async def code(self) -> int:
        """Show what it prints until it ends; its exit code."""
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        await asyncio.gather(self._show(out, sys.stdout, self._prefix), self._show(err, sys.stderr, f"[{self.name}] "))
        code = await self._process.wait()
        if code == SSH_FAILED:
            print(f"tandem: lost the connection to {self.name}", file=sys.stderr)
        return code if code >= 0 else SIGNALLED - code

    def tell(self, word: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(f"{word}\n".encode())

    def mute(self) -> None:
        """Show no more of it but its errors: the rest only follows from what has happened elsewhere."""
        self._muted = True

    async def end(self) -> None:
        """Let go of it: it ends what it has started, or is cut off."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            # Twice: for its processes to end when asked to, and for it to see to the rest.
            await asyncio.wait_for(self._process.wait(), 2 * GRACE_SECONDS)
        except TimeoutError:
            self._process.kill()

    def speak_plainly(self) -> None:
        """Show its answers as they are: a program reads them."""
        self._prefix = ""

    async def _show(self, stream: asyncio.StreamReader, target: TextIO, prefix: str) -> None:
        while line := await stream.readline():
            text = line.decode("utf-8", errors="replace").rstrip("\n")
            if not self._muted or text.startswith("tandem: "):
                print(f"{prefix}{text}", file=target, flush=True)


async def _first_failure(workers: Sequence[Worker]) -> int:
    tasks = [asyncio.create_task(worker.code()) for worker in workers]
    first = 0
    for finished in asyncio.as_completed(tasks):
        code = await finished
        if code and not first:
            first = code
            for worker in workers:
                worker.mute()
            # None can go on without the others; those who have ended hear nothing.
            await asyncio.gather(*(worker.end() for worker in workers))
    return first


@asynccontextmanager
async def _stopping_on_request(workers: Sequence[Worker]) -> AsyncIterator[None]:
    """The first Ctrl-C or SIGTERM asks all hosts to save and stop, the second one ends them at once."""
    loop, asked, ending = asyncio.get_running_loop(), False, set[asyncio.Task[None]]()

    def on_signal() -> None:
        nonlocal asked
        if asked:
            print("tandem: ending all hosts at once; started again, the run goes on from its newest checkpoint")
            ending.update(asyncio.create_task(worker.end()) for worker in workers)
        else:
            print("tandem: asking all hosts to save and stop; once more to end them at once", file=sys.stderr)
            for worker in workers:
                worker.tell(STOP)
        asked = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await asyncio.gather(*(worker.end() for worker in workers), *ending)


@asynccontextmanager
async def _staying_in_touch(workers: Sequence[Worker]) -> AsyncIterator[None]:
    """Let all hosts know every now and then that the launcher is there; they end when they hear nothing."""

    async def keep_telling() -> None:
        while True:
            await asyncio.sleep(SILENCE_SECONDS / 4)
            for worker in workers:
                worker.tell(ALIVE)

    task = asyncio.create_task(keep_telling())
    try:
        yield
    finally:
        task.cancel()


async def _run(ssh: Sequence[str], host: Host, order: dict[str, Any], stdin: int) -> Process:
    """Start this package's remote part on a host, in the same directory and with the same Python as here."""
    command = [sys.executable, "-m", "tandem.cluster.remote", json.dumps(order)]
    if not host.here:
        there = f"cd {shlex.quote(str(Path.cwd()))} && exec {shlex.join(command)}"
        options = ["-T"]
        for option in SSH_OPTIONS:
            options += ["-o", option]
        command = [*ssh, *options, host.name, there]
    # A session of its own, because Ctrl-C reaches everything in the terminal's, and ssh would just hang up.
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=stdin, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=2**20
        )
    except FileNotFoundError as error:
        raise TandemError(f"--ssh {ssh[0]}: there is no such program; install it or name another") from error


async def _look_at_hosts(order: Launch) -> list[Facts]:
    """What every host has; all that cannot be used are named at once."""
    looks = [_look(order, host, order.port if not node else None) for node, host in enumerate(order.hosts)]
    answers = await asyncio.gather(*looks, return_exceptions=True)
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    for fault in faults:
        if not isinstance(fault, TandemError):
            raise fault
    if faults:
        raise TandemError("; ".join(map(str, faults)))
    return [answer for answer in answers if isinstance(answer, Facts)]


async def _look(order: Launch, host: Host, port: int | None) -> Facts:
    process = await _run(order.ssh, host, {"look": {"corpus": order.corpus, "port": port}}, stdin=DEVNULL)
    try:
        async with asyncio.timeout(order.join_seconds):
            out, err = await process.communicate()
    except TimeoutError as error:
        process.kill()
        raise TandemError(f"{host.name}: no answer within {order.join_seconds} s; is it overloaded?") from error
    lines = err.decode(errors="replace").strip().splitlines() or ["no message"]
    if process.returncode == SSH_FAILED and not host.here:
        raise TandemError(f"{host.name}: {lines[-1]}; make sure that `{shlex.join(order.ssh)} {host.name} true` works")
    if process.returncode:
        raise TandemError(f"{host.name}: {lines[-1]}; install Tandem there as here ({sys.executable} in {Path.cwd()})")
    # Whatever a login script prints comes before.
    try:
        facts = Facts(**json.loads(out.decode().strip().splitlines()[-1]))
    except (ValueError, TypeError, IndexError) as error:
        raise TandemError(f"{host.name}: has another version of Tandem; install the same everywhere") from error
    if facts.fault is not None:
        raise TandemError(f"{host.name}: {facts.fault}")
    return facts


def _check_alike(order: Launch, facts: Sequence[Facts]) -> None:
    """Insist on one version of the package and one corpus everywhere."""
    _insist(order, "here is", package_version(), [fact.version for fact in facts], "install the same everywhere")
    digests = [str(fact.corpus_digest)[:12] for fact in facts]
    what = f"{order.corpus} on {order.hosts[0].name} is corpus"
    _insist(order, what, digests[0], digests, "copy one of them to all hosts")


def _insist(order: Launch, what: str, wanted: str, found: Sequence[str], remedy: str) -> None:
    others = [f"{host.name} has {value}" for host, value in zip(order.hosts, found, strict=True) if value != wanted]
    if others:
        raise TandemError(f"{what} {wanted}, but {', '.join(others)}; {remedy}")


def _meeting_address(order: Launch, facts: Sequence[Facts]) -> str:
    """The first host's address, as the network between the hosts knows it."""
    if not order.hosts[0].here:
        if facts[0].own_address is None:
            raise TandemError(f"{order.hosts[0].name}: its ssh server does not tell its address; give --address")
        return facts[0].own_address
    # This machine is the first host: the others have seen where the launcher's connection came from.
    return next((fact.launcher_address for fact in facts if fact.launcher_address is not None), "127.0.0.1")
