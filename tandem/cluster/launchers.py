"""What the program that started this process told it, without importing anything heavy.

torchrun, Open MPI and Slurm each leave a process's place in environment variables of their own; none of them
means a single process. Ranks are always derived from these, never typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tandem.errors import TandemError

# Set by `tandem launch` to its own -H, so that a missing rank's host can be named.
HOSTS_VARIABLE = "TANDEM_HOSTS"
# Ports for runs whose launcher names none; a job's number picks one, so that two jobs on a host rarely meet.
FIRST_PORT, PORTS = 29500, 1000
NO_PROCESS_BESIDE_MPIRUN = "if mpirun's own machine runs no process, add -x MASTER_ADDR=<host of rank 0>"


class Place(NamedTuple):
    """A process's place among all processes of a run."""

    rank: int
    size: int
    local_rank: int

    @property
    def leads(self) -> bool:
        """Whether this is the one process that speaks and writes for all."""
        return not self.rank


@dataclass(frozen=True)
class Rendezvous:
    """Where the processes of a run meet first."""

    addresses: tuple[str, ...]
    """Names or addresses of one host; the first that answers will do."""
    port: int
    launcher_serves: bool = False
    """Whether the launcher itself waits there; otherwise one of the processes does."""
    here: bool | None = None
    """Whether that host is this one, if that process is the first one there; otherwise it is rank 0."""
    prefix: str = ""
    """Tells one attempt of a launcher from the one before."""
    remedy: str = "the first process has not started, or a firewall is between"
    """What to think of if nobody answers there."""


@dataclass(frozen=True)
class Launcher:
    """A program that starts the processes of a run, and the variables in which it tells a process its place."""

    name: str
    rank: str
    size: str
    local_rank: str
    signs: tuple[str, ...]
    """Variables of which any one says that this launcher is at work."""
    rendezvous: Callable[[Mapping[str, str]], Rendezvous]
    hosts: Callable[[Mapping[str, str]], Sequence[str]]
    """The host of every rank, as far as the launcher tells."""

    def place(self, environment: Mapping[str, str]) -> Place | None:
        """The place this launcher gave the process, if it was this one that started it."""
        names = (self.rank, self.size, self.local_rank)
        if not any(name in environment for name in self.signs):
            return None
        present = [name for name in names if name in environment]
        if len(present) < len(names):
            missing = sorted(set(names) - set(present))
            raise TandemError(
                f"{', '.join(present)} set but {', '.join(missing)} not: start the processes with {self.name}"
            )
        try:
            return Place(*(int(environment[name]) for name in names))
        except ValueError as error:
            raise TandemError(f"{', '.join(names)}: not whole numbers ({error}); unset them") from error


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """This process's place; alone, if no launcher started it."""
    found = _started_by(environment)
    return found[1] if found else Place(0, 1, 0)


def rendezvous(environment: Mapping[str, str] = os.environ) -> Rendezvous:
    """Where this process meets the others that were started with it."""
    found = _started_by(environment)
    assert found, "a single process meets nobody"
    named = environment.get("MASTER_ADDR")
    if named is None or found[0] is TORCHRUN:
        return found[0].rendezvous(environment)
    return Rendezvous((named,), _port(environment, 0))


def expected_hosts(environment: Mapping[str, str] = os.environ) -> Sequence[str]:
    """The host of every rank, in order; empty if nobody has told."""
    if HOSTS_VARIABLE in environment:
        return [name for name, count in parse_hosts(environment[HOSTS_VARIABLE]) for _ in range(count)]
    found = _started_by(environment)
    return found[0].hosts(environment) if found else []


def parse_hosts(text: str) -> list[tuple[str, int]]:
    """Hosts and their numbers of processes from `vm1:2,vm2:2`; a host without a number has one process."""
    hosts = []
    for part in text.split(","):
        # The host may be an IPv6 address in brackets: only what follows the last colon outside them is a number.
        match = re.fullmatch(r"\s*([\w.@-]+|\[[0-9a-fA-F:.%\w]+\])(?::([1-9]\d*))?\s*", part)
        if not match:
            raise TandemError(f"-H {text}: {part!r} is not of the form host or host:processes, for example vm1:2,vm2:2")
        hosts.append((match[1].strip("[]"), int(match[2] or 1)))
    names = [name for name, _ in hosts]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise TandemError(f"-H {text}: {', '.join(repeated)} named twice; give each host once, with its processes")
    return hosts


def _started_by(environment: Mapping[str, str]) -> tuple[Launcher, Place] | None:
    for launcher in LAUNCHERS:
        found = launcher.place(environment)
        if found is not None:
            return launcher, found
    return None


def _port(environment: Mapping[str, str], job: int) -> int:
    return int(environment.get("MASTER_PORT", FIRST_PORT + job % PORTS))


def _torchrun_rendezvous(environment: Mapping[str, str]) -> Rendezvous:
    if "MASTER_ADDR" not in environment:
        raise TandemError("RANK set but MASTER_ADDR not: start the processes with torchrun, or put rank 0's host there")
    return Rendezvous(
        (environment["MASTER_ADDR"],),
        _port(environment, 0),
        launcher_serves=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        prefix=environment.get("TORCHELASTIC_RESTART_COUNT", ""),
    )


def _torchrun_hosts(environment: Mapping[str, str]) -> Sequence[str]:
    """torchrun knows its nodes by number alone, and how many processes this one has."""
    size, local_size = int(environment["WORLD_SIZE"]), int(environment.get("LOCAL_WORLD_SIZE", 0))
    if int(environment.get("GROUP_WORLD_SIZE", 0)) * local_size != size:
        # Nodes with different numbers of processes: only each node knows its own.
        return []
    return [f"node {rank // local_size}" for rank in range(size)]


def _open_mpi_rendezvous(environment: Mapping[str, str]) -> Rendezvous:
    """The host of mpirun itself, which its daemons on all hosts have reached already, if a process runs there."""
    uri = environment.get("OMPI_MCA_orte_hnp_uri", "")
    found = re.search(r"tcp://([^;]+):\d+", uri)
    if not found:
        raise TandemError("mpirun does not tell where it runs; add -x MASTER_ADDR=<host of rank 0>")
    job = int(environment.get("OMPI_MCA_ess_base_jobid", 0))
    # The lowest bits count the jobs of one mpirun, so the number of the mpirun itself lies above them.
    return Rendezvous(
        tuple(found[1].split(",")),
        _port(environment, job >> 16),
        here=environment.get("OMPI_MCA_orte_local_daemon_uri") == uri,
        remedy=NO_PROCESS_BESIDE_MPIRUN,
    )


def _slurm_rendezvous(environment: Mapping[str, str]) -> Rendezvous:
    """The first host of the step, where Slurm puts rank 0."""
    hosts = _expand_nodes(environment.get("SLURM_STEP_NODELIST", ""))
    if not hosts:
        raise TandemError("SLURM_STEP_NODELIST is not set: start the processes with srun")
    return Rendezvous((hosts[0],), _port(environment, int(environment.get("SLURM_JOB_ID", 0))))


def _slurm_hosts(environment: Mapping[str, str]) -> Sequence[str]:
    """Hosts from `vm[1-2]` and their tasks from `2(x2)`, if ranks fill one host after the other, as is the default."""
    if environment.get("SLURM_DISTRIBUTION", "block").split(":")[0] not in ("block", "block,pack", "block,nopack"):
        return []
    counts: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    hosts = _expand_nodes(environment.get("SLURM_STEP_NODELIST", ""))
    if len(hosts) != len(counts):
        return []
    return [host for host, count in zip(hosts, counts, strict=True) for _ in range(count)]


def _expand_nodes(text: str) -> list[str]:
    """Slurm's short form of host names written out: `vm[1-2,7],login` is vm1, vm2, vm7 and login."""
    hosts = []
    for prefix, ranges, suffix in re.findall(r"([^\[\],]+)(?:\[([^\]]+)\])?([^\[\],]*)", text):
        if not ranges:
            hosts.append(prefix + suffix)
        for part in filter(None, ranges.split(",")):
            first, _, last = part.partition("-")
            # Numbers keep the width they are written with: vm[08-10] is vm08, vm09, vm10.
            numbers = range(int(first), int(last or first) + 1)
            hosts += [f"{prefix}{number:0{len(first)}d}{suffix}" for number in numbers]
    return hosts


TORCHRUN = Launcher(
    name="torchrun",
    rank="RANK",
    size="WORLD_SIZE",
    local_rank="LOCAL_RANK",
    signs=("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    rendezvous=_torchrun_rendezvous,
    hosts=_torchrun_hosts,
)
OPEN_MPI = Launcher(
    name="mpirun",
    rank="OMPI_COMM_WORLD_RANK",
    size="OMPI_COMM_WORLD_SIZE",
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    signs=("OMPI_COMM_WORLD_SIZE",),
    rendezvous=_open_mpi_rendezvous,
    hosts=lambda _environment: [],
)
SLURM = Launcher(
    name="srun",
    rank="SLURM_PROCID",
    size="SLURM_STEP_NUM_TASKS",
    local_rank="SLURM_LOCALID",
    # Of a step, not of the job: a batch script has a rank in its job, too, but no peers.
    signs=("SLURM_STEP_NUM_TASKS",),
    rendezvous=_slurm_rendezvous,
    hosts=_slurm_hosts,
)
# torchrun may have been started by mpirun or srun, and mpirun inside a Slurm job: the innermost one counts.
LAUNCHERS = (TORCHRUN, OPEN_MPI, SLURM)
