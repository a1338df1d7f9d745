"""What `tandem launch` runs on every host, over ssh: first a look at what is there, then torchrun.

One JSON object on the command line says what to do. While torchrun works, standard input is the line to the
launcher: the word `stop` asks the training processes to save and stop, and its end, whatever has happened to the
launcher or the network, ends everything that was started here.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tandem.cluster.network import host_name
from tandem.cluster.version import package_version
from tandem.errors import TandemError

STOP, ALIVE = "stop", "alive"
# A launcher that is not heard for so long is gone, or the network to it is.
SILENCE_SECONDS = 60
# Between asking a process to end and ending it: enough to close files, not enough to wait for a lost peer.
GRACE_SECONDS = 5
# prctl(2): orphans of this process's children become its own children, where they can be found.
PR_SET_CHILD_SUBREAPER = 36
SIGNALLED = 128
"""Added to a signal's number, this is a shell's exit code for a process ended by it."""


@dataclass(frozen=True)
class Facts:
    """What a host answers when it is looked at before a start."""

    version: str
    corpus_digest: str | None
    fault: str | None
    free_port: int
    own_address: str | None
    """This host's address, as the launcher's connection reached it."""
    launcher_address: str | None


@dataclass(frozen=True)
class Work:
    """A host's part in a run."""

    node: int
    nodes: int
    processes: int
    address: str
    port: int
    arguments: list[str]
    join_seconds: int
    environment: dict[str, str] = field(default_factory=dict)


def look(corpus: str | None, port: int | None) -> Facts:
    """The facts about this host that must fit those of the others."""
    digest, fault = None, None
    if corpus is not None:
        from tandem.corpus.prepared import PreparedCorpus

        try:
            digest = PreparedCorpus.open(Path(corpus)).digest
        except (TandemError, OSError) as error:
            fault = str(error)
    try:
        free_port = _free_port(port or 0)
    except OSError as error:
        free_port, fault = 0, fault or f"port {port} cannot be used ({error.strerror}); choose another --port"
    client, _, server, _ = (os.environ.get("SSH_CONNECTION", "") + "   ").split(" ")[:4]
    return Facts(package_version(), digest, fault, free_port, server or None, client or None)


def work(order: Work) -> int:
    """Run torchrun until it ends or the launcher lets go; the exit code of the first process that failed."""
    _adopt_orphans()
    command = [sys.executable, "-m", __spec__.name, json.dumps({"torchrun": asdict(order)})]
    # torchrun would give each of several processes one thread, whatever the host has.
    threads = {"OMP_NUM_THREADS": str(max(len(psutil.Process().cpu_affinity() or [0]) // order.processes, 1))}
    environment = {**threads, **os.environ, **order.environment}
    agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    threading.Thread(target=_obey, args=(sys.stdin.fileno(), agent), daemon=True).start()
    code = agent.wait()
    _end_descendants()
    return code if code >= 0 else SIGNALLED - code


def torchrun(order: Work) -> int:
    """torchrun without its account of failures: the failing process has said what there is to say."""
    from torch.distributed import DistError
    from torch.distributed import run as torchrun_program
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    run: Callable[[Any], None] = torchrun_program.run
    parse: Callable[[list[str]], Any] = torchrun_program.parse_args
    for name in ("torch.distributed.elastic", "torch.distributed.run"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options = [
        f"--nnodes={order.nodes}",
        f"--node-rank={order.node}",
        f"--nproc-per-node={order.processes}",
        f"--master-addr={order.address}",
        f"--master-port={order.port}",
        f"--rdzv-conf=timeout={order.join_seconds}",
    ]
    try:
        run(parse([*options, "-m", "tandem", "--", *order.arguments]))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            ended_by = signal.Signals(-failure.exitcode).name
            print(f"tandem: rank {rank} on {host_name()} was ended by {ended_by}", file=sys.stderr)
            return SIGNALLED - failure.exitcode
        return failure.exitcode
    except DistError as error:
        reason = str(error).partition("\n")[0]
        print(
            f"tandem: {host_name()} cannot meet the others at {order.address}:{order.port} ({reason})", file=sys.stderr
        )
        return 2
    return 0


def _obey(line: int, agent: subprocess.Popen[bytes]) -> None:
    """Do what the launcher says; when it says nothing any more, end everything."""
    while select.select([line], [], [], SILENCE_SECONDS)[0]:
        words = os.read(line, 4096).decode().split()
        if not words:
            break
        if STOP in words:
            training = _training_processes(agent)
            if not training:
                # torchrun has not come so far: there is nothing to save yet.
                break
            _signal(training, signal.SIGTERM)
    # torchrun would give an account of its end; the training processes may still save, if all hosts are let go.
    training = _training_processes(agent)
    agent.kill()
    _signal(training, signal.SIGTERM)
    _end_descendants()


def _training_processes(agent: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(agent.pid).children()
    except psutil.NoSuchProcess:
        return []


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _end_descendants() -> None:
    """Leave nothing behind."""
    _, alive = psutil.wait_procs(_descendants(), timeout=GRACE_SECONDS)
    _signal(alive, signal.SIGKILL)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _free_port(wanted: int) -> int:
    """The wanted port, if it is free; any free one for 0."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        # Listening sockets of a run that has just ended do not stand in the way of the next.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", wanted))
        return int(probe.getsockname()[1])


def main(order: dict[str, Any]) -> int:
    """Do the one thing that the order names."""
    match order:
        case {"look": {"corpus": corpus, "port": port}}:
            print(json.dumps(asdict(look(corpus, port))))
            return 0
        case {"work": dict(details)}:
            return work(Work(**details))
        case {"torchrun": dict(details)}:
            return torchrun(Work(**details))
    raise AssertionError(f"unknown order {order}")


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
