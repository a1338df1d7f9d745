"""Launchers: what torchrun, Open MPI or Slurm tell a process in environment variables; without any it is alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tandem.errors import TandemError
from tandem.ssh import HOST_PATTERN

# Set by `tandem launch` to its own -H, so that a missing rank's host can be named.
HOSTS_VARIABLE = "TANDEM_HOSTS"
# Set by `tandem launch` to a number of its own that no other launch has, the same on all hosts.
LAUNCH_ID_VARIABLE = "TANDEM_LAUNCH_ID"
# Ports for runs whose launcher names none; a job's number picks one, so that two jobs on a host rarely meet.
FIRST_PORT, PORTS = 29500, 1000
# Ports between two steps of a job: the neighbouring ports are those of the jobs submitted next.
PORTS_BETWEEN_STEPS = 37
NO_PROCESS_BESIDE_MPIRUN = "if mpirun's own machine runs no process, add -x MASTER_ADDR=<host of rank 0>"


class ProcessRank(NamedTuple):
    """A process's rank among all processes of a run, their number, and its rank on its host."""

    rank: int
    size: int
    local_rank: int

    @property
    def is_leader(self) -> bool:
        """Whether this is the one process that speaks and writes for all."""
        return not self.rank


@dataclass(frozen=True)
class Rendezvous:
    """Address and port of the store at which the processes of a run meet."""

    addresses: tuple[str, ...]
    """Names or addresses of one host; the first that answers will do."""
    port: int
    launcher_serves: bool = False
    """Whether the launcher itself serves the store; otherwise one of the processes does."""
    here: bool | None = None
    """Whether that host is this one, if its first process serves the store; None if rank 0 does."""
    prefix: str = ""
    """Prefix of all keys, different for each attempt of a launcher."""
    remedy: str = "the first process has not started, or a firewall is between"
    """Advice if nobody answers there."""


class Launcher:
    """A program that starts the processes of a run, and the variables in which it tells them about each other."""

    name: ClassVar[str]
    variables: ClassVar[tuple[str, str, str]]
    """Names of the variables that hold rank, number of processes and rank on the host."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    @property
    def started(self) -> bool:
        """Whether this launcher has started the process."""
        return self.variables[1] in self.environment

    def process_rank(self) -> ProcessRank:
        present = [name for name in self.variables if name in self.environment]
        if missing := sorted(set(self.variables) - set(present)):
            raise TandemError(
                f"{', '.join(present)} set but {', '.join(missing)} not: start the processes with {self.name}"
            )
        try:
            return ProcessRank(*(int(self.environment[name]) for name in self.variables))
        except ValueError as error:
            raise TandemError(f"{', '.join(self.variables)}: not whole numbers ({error}); unset them") from error

    def rendezvous(self) -> Rendezvous:
        """Where the processes meet."""
        raise NotImplementedError

    def hosts(self) -> Sequence[str]:
        """The host of every rank; empty if the launcher does not tell."""
        return []

    def job(self) -> str:
        """What the launcher calls this start of processes, different from all others; empty if it has no name."""
        return ""

    def port(self, job: int = 0) -> int:
        """The port to meet at: the one that is set, or one picked by the job's number."""
        return int(self.environment.get("MASTER_PORT", FIRST_PORT + job % PORTS))


class Torchrun(Launcher):
    """torchrun, `tandem launch`, and whoever sets the same variables by hand."""

    name = "torchrun"
    variables = ("RANK", "WORLD_SIZE", "LOCAL_RANK")

    @property
    def started(self) -> bool:
        return any(name in self.environment for name in self.variables)

    def rendezvous(self) -> Rendezvous:
        if "MASTER_ADDR" not in self.environment:
            raise TandemError(
                "RANK set but MASTER_ADDR not: start the processes with torchrun, or put rank 0's host there"
            )
        return Rendezvous(
            (self.environment["MASTER_ADDR"],),
            self.port(),
            launcher_serves=self.environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            prefix=self.environment.get("TORCHELASTIC_RESTART_COUNT", ""),
        )

    def job(self) -> str:
        if launch := self.environment.get(LAUNCH_ID_VARIABLE):
            return f"tandem launch {launch}"
        run = self.environment.get("TORCHELASTIC_RUN_ID")
        attempt = self.environment.get("TORCHELASTIC_RESTART_COUNT")
        return "" if run is None else f"torchrun's run {run}{_attempt(attempt)}"

    def hosts(self) -> Sequence[str]:
        """Numbers of nodes, if all have as many processes as this one: torchrun tells no more."""
        nodes, local_size = (int(self.environment.get(name, 0)) for name in ("GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        size = self.process_rank().size
        return [f"node {rank // local_size}" for rank in range(size)] if nodes * local_size == size else []


class OpenMpi(Launcher):
    """Open MPI's mpirun."""

    name = "mpirun"
    variables = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")

    def rendezvous(self) -> Rendezvous:
        """The host of mpirun itself, which its daemons on all hosts have reached already, if a process runs there."""
        uri = self.environment.get("OMPI_MCA_orte_hnp_uri", "")
        found = re.search(r"tcp://([^;]+):\d+", uri)
        if not found:
            raise TandemError("mpirun does not tell where it runs; add -x MASTER_ADDR=<host of rank 0>")
        return Rendezvous(
            tuple(found[1].split(",")),
            # The lowest bits count the jobs of one mpirun, so the number of the mpirun itself lies above them.
            self.port(int(self.environment.get("OMPI_MCA_ess_base_jobid", 0)) >> 16),
            here=self.environment.get("OMPI_MCA_orte_local_daemon_uri") == uri,
            remedy=NO_PROCESS_BESIDE_MPIRUN,
        )

    def job(self) -> str:
        job = self.environment.get("OMPI_MCA_ess_base_jobid")
        return "" if job is None else f"mpirun's job {job}"


class Slurm(Launcher):
    """Slurm's srun. The variables of a step count, not those of a job: a batch script has no peers."""

    name = "srun"
    variables = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")

    def rendezvous(self) -> Rendezvous:
        """The first host of the step, where Slurm puts rank 0."""
        if not (nodes := self._nodes()):
            raise TandemError("SLURM_STEP_NODELIST is not set: start the processes with srun")
        job, step = (int(self.environment.get(name, 0)) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        return Rendezvous((nodes[0],), self.port(job + PORTS_BETWEEN_STEPS * step))

    def job(self) -> str:
        job, step, restarts = (self.environment.get(f"SLURM_{name}") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT"))
        return "" if job is None else f"step {step or 0} of Slurm job {job}{_attempt(restarts)}"

    def hosts(self) -> Sequence[str]:
        """Hosts from `vm[1-2]` and their tasks from `2(x2)`, if ranks fill one host after the other, as by default."""
        order = self.environment.get("SLURM_DISTRIBUTION", "block").split(":")[0]
        tasks = self.environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(",")
        runs = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in tasks]
        counts = [int(run[1]) for run in runs if run for _ in range(int(run[2] or 1))]
        nodes = self._nodes()
        if order not in ("block", "block,pack", "block,nopack") or not all(runs) or len(counts) != len(nodes):
            return []
        return [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]

    def _nodes(self) -> list[str]:
        """The step's hosts from Slurm's short form: `vm[1-2,7],login` is vm1, vm2, vm7 and login."""
        nodes, short = [], self.environment.get("SLURM_STEP_NODELIST", "")
        for prefix, ranges, suffix in re.findall(r"([^\[\],]+)(?:\[([^\]]+)\])?([^\[\],]*)", short):
            if not ranges:
                nodes.append(prefix + suffix)
            for part in filter(None, ranges.split(",")):
                first, _, last = part.partition("-")
                # Numbers keep the width they are written with: vm[08-10] is vm08, vm09, vm10.
                numbers = range(int(first), int(last or first) + 1)
                nodes += [f"{prefix}{number:0{len(first)}d}{suffix}" for number in numbers]
        return nodes


# torchrun may have been started by mpirun or srun, and mpirun inside a Slurm job: the innermost one counts.
LAUNCHERS = (Torchrun, OpenMpi, Slurm)


def process_rank(environment: Mapping[str, str] = os.environ) -> ProcessRank:
    """This process's rank among those started with it; alone, if no launcher started it."""
    launcher = _launcher(environment)
    return launcher.process_rank() if launcher else ProcessRank(0, 1, 0)


def started_by_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process, so that nobody sits at its terminal: mpirun and srun give it one."""
    return _launcher(environment) is not None


def kills_after_a_second(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the launcher kills a second after it has asked processes to end, as mpirun does by default."""
    return isinstance(_launcher(environment), OpenMpi)


def rendezvous(environment: Mapping[str, str] = os.environ) -> Rendezvous:
    """Where this process meets the others that were started with it."""
    launcher = _launcher(environment)
    assert launcher, "a single process meets nobody"
    named = environment.get("MASTER_ADDR")
    if named is None or isinstance(launcher, Torchrun):
        return launcher.rendezvous()
    return Rendezvous((named,), launcher.port())


def expected_hosts(environment: Mapping[str, str] = os.environ) -> Sequence[str]:
    """The host of every rank, in order; empty if no launcher tells."""
    if HOSTS_VARIABLE in environment:
        return [name for name, count in parse_hosts(environment[HOSTS_VARIABLE]) for _ in range(count)]
    launcher = _launcher(environment)
    return launcher.hosts() if launcher else []


def launched_as(environment: Mapping[str, str] = os.environ) -> str:
    """The launcher's name for this start of processes, with step and attempt; empty if it has none."""
    launcher = _launcher(environment)
    return launcher.job() if launcher else ""


def threads_of_task(environment: Mapping[str, str] = os.environ) -> int | None:
    """Threads that Slurm has given to each task, unless the user asks for another number; None if nobody says."""
    count = environment.get("SLURM_CPUS_PER_TASK", "")
    return int(count) if count.isdecimal() and int(count) and "OMP_NUM_THREADS" not in environment else None


def unused_tasks_notice(environment: Mapping[str, str] = os.environ) -> str | None:
    """A warning for a process that runs alone in a Slurm job of several tasks: sbatch starts its script once."""
    tasks = environment.get("SLURM_NTASKS", "")
    if _launcher(environment) is not None or not tasks.isdecimal() or int(tasks) < 2:
        return None
    return (
        f"Slurm gave this job {tasks} tasks, but only this one process was started; put srun before the command to "
        "use all of them"
    )


def _attempt(restarts: str | None) -> str:
    return f", restart {restarts}" if restarts not in (None, "", "0") else ""


def _launcher(environment: Mapping[str, str]) -> Launcher | None:
    launchers = (launcher(environment) for launcher in LAUNCHERS)
    return next((launcher for launcher in launchers if launcher.started), None)


def parse_hosts(text: str) -> list[tuple[str, int]]:
    """Hosts and their numbers of processes from `vm1:2,vm2:2`; a host without a number has one process."""
    hosts = []
    for part in text.split(","):
        # The host may be an IPv6 address in brackets: only what follows the last colon outside them is a number.
        name = rf"{HOST_PATTERN}|\[[0-9a-fA-F:.%\w]+\]"
        match = re.fullmatch(rf"\s*({name})(?::([1-9]\d*))?\s*", part, re.ASCII)
        if not match:
            raise TandemError(f"-H {text}: {part!r} is not of the form host or host:processes, for example vm1:2,vm2:2")
        hosts.append((match[1].strip("[]"), int(match[2] or 1)))
    names = [name for name, _ in hosts]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise TandemError(f"-H {text}: {', '.join(repeated)} named twice; give each host once, with its processes")
    return hosts
