"""The part of `tandem launch` that runs on every host: inspects it, then runs its training processes.

One JSON object on the command line says what to do. While processes run, standard input is the line to the launcher:
the word `stop` asks them to save and stop, and its end, whatever has happened to the launcher or the network, ends all.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem.cluster.source_version import package_version
from tandem.errors import TandemError
from tandem.monitor.network_interfaces import host_name
from tandem.process_exit import SIGNALLED, is_stop_code, stop_code

STOP, ALIVE = "stop", "alive"
# A launcher that is not heard for so long is gone, or the network to it is.
SILENCE_SECONDS = 60
# Between asking a process to end and ending it: enough to close files, not enough to wait for a lost peer.
GRACE_SECONDS = 5


@dataclass(frozen=True)
class HostFacts:
    """A host's answer when it is inspected before a start."""

    version: str
    corpus_digest: str | None
    fault: str | None
    free_port: int
    own_address: str | None
    """This host's address, as the launcher's connection reached it."""
    launcher_address: str | None


@dataclass(frozen=True)
class HostJob:
    """The training processes of a host: `count` of them, with ranks from `first_rank` on."""

    first_rank: int
    count: int
    world_size: int
    address: str
    """The address at which rank 0 waits for the others."""
    port: int
    arguments: list[str]
    """The `tandem` command that every process runs."""
    environment: dict[str, str]


def inspect_host(corpus: str | None, port: int | None) -> HostFacts:
    """The facts about this host that must fit those of the others, or what is wrong with it."""
    digest, fault, free_port = None, None, 0
    if corpus is not None:
        from tandem.corpus.prepared import PreparedCorpus

        try:
            digest = PreparedCorpus.open(Path(corpus)).digest
        except (TandemError, OSError) as error:
            fault = str(error)
    try:
        free_port = _free_port(port or 0)
    except OSError as error:
        fault = fault or f"port {port} cannot be used ({error.strerror}); choose another --port"
    client, _, server, _ = (os.environ.get("SSH_CONNECTION", "") + "   ").split(" ")[:4]
    return HostFacts(package_version(), digest, fault, free_port, server or None, client or None)


def _free_port(wanted: int) -> int:
    """The wanted port, if it is free; any free one for 0."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        # Listening sockets of a run that has just ended do not stand in the way of the next.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", wanted))
        return int(probe.getsockname()[1])


async def run_processes(order: HostJob) -> int:
    """Run training processes until they end or the launcher lets go; the exit code of the first that failed."""
    processes = [await _start(order, local_rank) for local_rank in range(order.count)]
    working = asyncio.create_task(_first_failure(order.first_rank, processes))
    obeying = asyncio.create_task(_obey(processes))
    await asyncio.wait([working, obeying], return_when=asyncio.FIRST_COMPLETED)
    code = working.result() if working.done() else stop_code(signal.SIGTERM)
    working.cancel()
    if working.done() and is_stop_code(code):
        # All save and stop together: the others are still closing what they have open.
        await _wait(processes)
    await _end(processes)
    return code


async def _wait(processes: Sequence[Process]) -> None:
    """Wait a while for processes to end by themselves."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(process.wait() for process in processes)), GRACE_SECONDS)


async def _start(order: HostJob, local_rank: int) -> Process:
    place = {
        "RANK": order.first_rank + local_rank,
        "WORLD_SIZE": order.world_size,
        "LOCAL_RANK": local_rank,
        "MASTER_ADDR": order.address,
        "MASTER_PORT": order.port,
    }
    # The processes of a host share its cores, unless the user says otherwise.
    threads = {"OMP_NUM_THREADS": str(max(len(os.sched_getaffinity(0)) // order.count, 1))}
    environment = {**threads, **os.environ, **order.environment, **{name: str(value) for name, value in place.items()}}
    command = [sys.executable, "-m", "tandem", *order.arguments]
    # A process group of its own, with which whatever the process starts can be ended.
    return await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, env=environment, process_group=0)


async def _first_failure(first_rank: int, processes: Sequence[Process]) -> int:
    """The exit code of the first process that fails, 0 when all have ended well."""

    async def ended(rank: int, process: Process) -> tuple[int, int]:
        return rank, await process.wait()

    for end in asyncio.as_completed([ended(*ranked) for ranked in enumerate(processes, first_rank)]):
        rank, code = await end
        if code < 0:
            ended_by = signal.Signals(-code).name
            print(f"tandem: rank {rank} on {host_name()} was ended by {ended_by}", file=sys.stderr)
            return SIGNALLED - code
        if code:
            return code
    return 0


async def _obey(processes: Sequence[Process]) -> None:
    """Do what the launcher says, until it says nothing any more."""
    launcher = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(launcher)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    with suppress(TimeoutError):
        while words := await asyncio.wait_for(launcher.read(4096), SILENCE_SECONDS):
            if STOP in words.decode().split():
                _terminate(processes)


async def _end(processes: Sequence[Process]) -> None:
    """Ask processes to end, and after a while end them with all that they have started."""
    _terminate(processes)
    await _wait(processes)
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _terminate(processes: Sequence[Process]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.terminate()


def main(order: dict[str, Any]) -> int:
    """Do the one thing that the order names."""
    match order:
        case {"inspect": dict(details)}:
            print(json.dumps(asdict(inspect_host(**details))))
            return 0
        case {"run": dict(details)}:
            return asyncio.run(run_processes(HostJob(**details)))
    raise AssertionError(f"unknown order {order}")


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
