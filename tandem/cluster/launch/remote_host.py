"""The agent of `tandem launch` on every host: inspects it, or runs its training processes and reports how they ended.

The first line of standard input is the order, a JSON object: on a command line everybody on the host could read it.
While processes run, further lines come from the launcher: `stop` with a signal's number asks them to save and stop,
`end` ends them at once, and the end of input or a long silence, whatever has happened to the launcher or the network,
asks them to stop, too.
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

import psutil

from tandem.cluster.launch.launch_order import MARK_VARIABLE
from tandem.cluster.launch.out_of_memory import log_tells_oom, oom_kills
from tandem.cluster.launch.restart_policy import HostReport
from tandem.cluster.source_version import package_version
from tandem.errors import TandemError
from tandem.layout import RunPaths, checkpoint_directories
from tandem.process_exit import (
    LOST_PEER_CODE,
    SIGNALLED,
    STOP_SIGNALS,
    is_stop_code,
    signal_after_parent,
    stop_code,
)
from tandem.units import rank_list

STOP, END, ALIVE = "stop", "end", "alive"
# Stands before the agent's report on standard error, which it shares with its processes.
REPORT_MARK = "\x1e"
# A launcher that is not heard for so long is gone, or the network to it is.
SILENCE_SECONDS = 60
# What a process gets beyond its own deadline for saving and stopping, and all that it gets when it is to end at once.
GRACE_SECONDS = 5
# Longest wait for processes to notice by themselves that one of them is gone, and to say what they have saved.
NOTICE_SECONDS = 10


@dataclass(frozen=True)
class HostFacts:
    """A host's answer when it is inspected before a start."""

    version: str
    corpus_digest: str | None
    fault: str | None
    free_port: int
    """A free port, or 0 if the one that was asked for is in use."""
    has_run: bool
    """Whether this host has the run's directory, with more in it than a journal."""
    newest_step: int | None
    """Step of the newest checkpoint in it."""
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
    stop_seconds: float
    """Longest time that a process takes to save and stop when it is asked to."""


def inspect_host(corpus: str | None, run: str | None, port: int | None, mark: str, stop_seconds: float) -> HostFacts:
    """The facts about this host that must fit those of the others, or what is wrong with it.

    What an earlier attempt of this launch has left here, cut off from its launcher, is ended first.
    """
    _end_leftovers(mark, stop_seconds + GRACE_SECONDS)
    digest, fault, free_port = None, None, 0
    if corpus is not None:
        from tandem.corpus.prepared import PreparedCorpus

        try:
            digest = PreparedCorpus.open(Path(corpus)).digest
        except (TandemError, OSError) as error:
            fault = str(error)
    with suppress(OSError):
        free_port = _free_port(port or 0)
    has_run, newest = False, None
    if run is not None:
        paths = RunPaths(Path(run))
        has_run, newest = paths.run_file.is_file(), max(checkpoint_directories(paths.checkpoints), default=None)
    client, _, server, _ = (os.environ.get("SSH_CONNECTION", "") + "   ").split(" ")[:4]
    own, launcher = server or None, client or None
    return HostFacts(package_version(), digest, fault, free_port, has_run, newest, own, launcher)


def _end_leftovers(mark: str, seconds: float) -> None:
    """Ask the processes that carry a launch's mark to save and stop, and end those that do not in time."""
    left = [process for process in psutil.process_iter() if _mark(process) == mark]
    for process in left:
        with suppress(psutil.Error):
            process.terminate()
            # One that is stopped hears nothing before it is woken.
            process.resume()
    _, deaf = psutil.wait_procs(left, seconds)
    for process in deaf:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(deaf, GRACE_SECONDS)


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK_VARIABLE)
    except (psutil.Error, OSError):  # another user's, or gone
        return None


def _free_port(wanted: int) -> int:
    """The wanted port, if it is free; any free one for 0."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        # Listening sockets of a run that has just ended do not stand in the way of the next.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", wanted))
        return int(probe.getsockname()[1])


async def run_processes(job: HostJob) -> HostReport:
    """Run training processes until they end or the launcher lets go, and end what is left of them."""
    kills_before = oom_kills()
    processes = HostProcesses([await _start(job, local_rank) for local_rank in range(job.count)])
    working = asyncio.create_task(processes.first_failure())
    obeying = asyncio.create_task(_obey(processes))
    await asyncio.wait([working, obeying], return_when=asyncio.FIRST_COMPLETED)
    failed = working.result() if working.done() else None
    working.cancel()
    # (Those that the user asks to stop are woken with it, and stop like all others.)
    frozen = processes.frozen() if processes.asked_by is None else []
    if frozen or (failed is not None and failed.code and not is_stop_code(failed.code)):
        # Asked at once, they would take the signal for the reason, and their journals would tell it.
        await processes.ended_within(NOTICE_SECONDS)
    if failed is None or not is_stop_code(failed.code):
        # After a stop code all are about to stop together.
        processes.ask_to_stop()
    await processes.end_within(job.stop_seconds + GRACE_SECONDS)
    obeying.cancel()
    code = stop_code(processes.asked_by or signal.SIGTERM) if failed is None else failed.code
    if frozen and (failed is None or code == LOST_PEER_CODE):
        ranks = rank_list([job.first_rank + local_rank for local_rank in frozen])
        were = "were" if len(frozen) > 1 else "was"
        return HostReport(LOST_PEER_CODE, f"{ranks} {were} frozen, as by SIGSTOP, and had to be ended")
    if failed is None or code >= 0:
        return HostReport(code)
    killed = f"rank {job.first_rank + failed.local_rank} was ended by {signal.Signals(-failed.code).name}"
    if -failed.code == signal.SIGKILL and (oom_kills() > kills_before or log_tells_oom(failed.process)):
        killed += " by the kernel: out of memory"
    return HostReport(SIGNALLED - failed.code, killed)


@dataclass(frozen=True)
class EndedProcess:
    """A training process that has ended, with its exit code as Python counts it: negative for a signal."""

    local_rank: int
    process: int
    code: int


class HostProcesses:
    """The training processes of this host, and how they are ended."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes
        self.asked_by: int | None = None
        """The signal by which they were asked to stop."""
        self._hurry = asyncio.Event()

    async def first_failure(self) -> EndedProcess:
        """The first process that fails, or the last one if all have ended well."""

        async def ended(local_rank: int, process: Process) -> EndedProcess:
            return EndedProcess(local_rank, process.pid, await process.wait())

        last = EndedProcess(0, 0, 0)
        for end in asyncio.as_completed([ended(*ranked) for ranked in enumerate(self._processes)]):
            last = await end
            if last.code:
                break
        return last

    def frozen(self) -> list[int]:
        """Local ranks of those that are stopped, as by SIGSTOP, and hear nothing until they are woken."""
        return [local_rank for local_rank, process in enumerate(self._processes) if _is_stopped(process.pid)]

    def ask_to_stop(self, number: int = signal.SIGTERM) -> None:
        """Ask all to save and stop; only once, because a second signal would cut the saving short."""
        if self.asked_by is None:
            self._signal(number)
            self._wake()
            self.asked_by = number

    def end_now(self) -> None:
        """Ask all to end at once, and wait for them no longer than that takes."""
        self.asked_by = self.asked_by or signal.SIGTERM
        self._signal(self.asked_by)
        self._wake()
        self._hurry.set()

    async def ended_within(self, seconds: float) -> None:
        """Wait so long for all to end by themselves, also for those that are stopped and only find out when woken."""
        self._wake()
        await asyncio.wait([asyncio.create_task(self._ended())], timeout=seconds)

    async def end_within(self, seconds: float) -> None:
        """Wait for all to end by themselves, then end them with all that they have started."""
        self._wake()
        waits = [asyncio.create_task(self._ended()), asyncio.create_task(self._hurry.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._hurry.is_set():
            await asyncio.wait(waits[:1], timeout=GRACE_SECONDS)
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for wait in waits:
            wait.cancel()

    async def _ended(self) -> None:
        await asyncio.gather(*(process.wait() for process in self._processes))

    def _signal(self, number: int) -> None:
        for process in self._processes:
            # (Process.send_signal would reap one that has just ended, and asyncio would not learn its exit code.)
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _wake(self) -> None:
        """Let those go on that are stopped: they can save like the others, or at least end by themselves."""
        self._signal(signal.SIGCONT)


def _is_stopped(identifier: int) -> bool:
    try:
        return bool(psutil.Process(identifier).status() == psutil.STATUS_STOPPED)
    except psutil.Error:  # it has ended
        return False


async def _start(job: HostJob, local_rank: int) -> Process:
    place = {
        "RANK": job.first_rank + local_rank,
        "WORLD_SIZE": job.world_size,
        "LOCAL_RANK": local_rank,
        "MASTER_ADDR": job.address,
        "MASTER_PORT": job.port,
    }
    # The processes of a host share its cores, unless the user says otherwise.
    threads = {"OMP_NUM_THREADS": str(max(len(os.sched_getaffinity(0)) // job.count, 1))}
    environment = {**threads, **os.environ, **job.environment, **{name: str(value) for name, value in place.items()}}
    command = [sys.executable, "-m", "tandem", *job.arguments]
    end_with_agent = signal_after_parent(signal.SIGTERM)

    def before_it_begins() -> None:
        # When the agent is killed nobody would look after it any more.
        end_with_agent()
        # Until it listens to them: before that, Python's own answer to a SIGINT is a traceback.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    return await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        env=environment,
        # A process group of its own, with which whatever the process starts can be ended.
        process_group=0,
        preexec_fn=before_it_begins,
    )


async def _obey(processes: HostProcesses) -> None:
    """Do what the launcher says, until it says nothing any more."""
    launcher = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(launcher)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    with suppress(TimeoutError):
        while line := await asyncio.wait_for(launcher.readline(), SILENCE_SECONDS):
            word, _, number = line.decode().strip().partition(" ")
            if word == STOP:
                processes.ask_to_stop(int(number))
            elif word == END:
                processes.end_now()
                return


def main(order: dict[str, Any]) -> int:
    """Do the one thing that the order names."""
    match order:
        case {"inspect": dict(details)}:
            print(json.dumps(asdict(inspect_host(**details))))
            return 0
        case {"run": dict(details)}:
            report = asyncio.run(run_processes(HostJob(**details)))
            with suppress(BrokenPipeError):  # the launcher may be gone
                print(f"{REPORT_MARK}{json.dumps(asdict(report))}", file=sys.stderr, flush=True)
            return report.code
    raise AssertionError(f"unknown order {order}")


if __name__ == "__main__":
    # Byte by byte up to the end of the line: what comes after it is for whoever obeys the launcher.
    with open(0, "rb", buffering=0, closefd=False) as standard_input:
        first_line = standard_input.readline()
    raise SystemExit(main(json.loads(first_line)))
