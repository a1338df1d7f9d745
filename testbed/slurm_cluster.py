"""A Slurm cluster on one machine: a controller, and a slurmd on each host of a rig (testbed/network_rig.py).

    with Rig() as rig, SlurmCluster(rig, directory) as slurm:
        slurm.call("srun", "-N2", "hostname")

Needs what the rig needs, and Debian's packages slurmctld, slurmd, slurm-client and munge. Nothing of a Slurm that the
machine may have otherwise is used or changed. The rig ends all that was started.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from testbed.network_rig import Rig, RigError

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged")
# Of one call, or of a state that is waited for, on a busy machine.
PATIENCE_SECONDS = 600
CONFIGURATION = """\
ClusterName=tandem
SlurmctldHost={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=30
PropagateResourceLimits=NONE
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """Slurm on the hosts of a rig; the first of them runs the controller, too."""

    def __init__(self, rig: Rig, directory: Path, cores: int = 2) -> None:
        self.rig, self.directory = rig, directory
        nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs={cores} State=UNKNOWN" for host in rig.hosts]
        first = rig.hosts[0]
        self._configuration = CONFIGURATION.format(
            controller=f"{first.name}({first.address})", directory=directory, nodes="\n".join(nodes)
        )

    def __enter__(self) -> SlurmCluster:
        configuration = self.directory / "slurm.conf"
        configuration.write_text(self._configuration)
        # Said, because slurmd finds no control groups where a host's name space hides them; none are used.
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.directory / "state").mkdir()
        self.environment = {"SLURM_CONF": str(configuration)}
        self._start_munge()
        self._start(0, "slurmctld", "-D", "-c", "-f", str(configuration))
        wait_until(lambda: "UP" in self._answer("scontrol", "ping"), "the controller")
        for number, host in enumerate(self.rig.hosts):
            self._start(number, "slurmd", "-D", "-f", str(configuration), "-N", host.name)
        everybody = len(self.rig.hosts)
        wait_until(lambda: self._answer("sinfo", "-hN", "-tidle").count("\n") == everybody, "the cluster's hosts")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what runs in the cluster; its own processes end with the rig."""
        self._answer("scancel", "--full", "--signal=KILL", "--user=root")

    def start(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command on the first host."""
        return self.rig.run(
            self.rig.hosts[0],
            command,
            {**self.environment, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def call(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Run a command on the first host to its good end; what it printed."""
        process = self.start(*command, env=env)
        out, _ = process.communicate(timeout=3 * PATIENCE_SECONDS)
        if process.returncode:
            raise RigError(f"{' '.join(command)}: ended with {process.returncode}: {out}")
        return out

    def job(self, identifier: int) -> dict[str, str]:
        """What Slurm knows of a job: JobState, Restarts, Requeue and so on."""
        shown = self._answer("scontrol", "--oneliner", "show", "job", str(identifier))
        return dict(part.split("=", 1) for part in shown.split() if "=" in part)

    def _start(self, number: int, program: str, *arguments: str) -> None:
        command = [_found(program) or program, *arguments]
        with (self.directory / f"{program}-{number}.log").open("w") as log:
            self.rig.run(self.rig.hosts[number], command, self.environment, stdout=log, stderr=subprocess.STDOUT)

    def _start_munge(self) -> None:
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        places = {"key-file": key}
        for name in ("socket", "pid", "log", "seed"):
            places[name if name == "socket" else f"{name}-file"] = self.directory / f"munge.{name}"
        options = [f"--{name}={place}" for name, place in places.items()]
        self._start(0, "munged", "--foreground", "--force", *options)
        wait_until((self.directory / "munge.socket").exists, "munge")

    def _answer(self, *command: str) -> str:
        """What a command on the first host says, whether or not it ends well."""
        host = self.rig.hosts[0]
        process = self.rig.run(host, command, self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return process.communicate(timeout=PATIENCE_SECONDS)[0]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that nobody reports: Slurm's own commands can only be asked again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RigError(f"{what}: not there after {PATIENCE_SECONDS} s")
        time.sleep(0.2)


def unavailable() -> str | None:
    """Why there can be no Slurm here, or None."""
    missing = [program for program in PROGRAMS if _found(program) is None]
    return f"{', '.join(missing)} missing: install slurmctld, slurmd, slurm-client and munge" if missing else None


def _found(program: str) -> str | None:
    # Servers lie beyond the path of those who are not root.
    return shutil.which(program) or shutil.which(f"/usr/sbin/{program}")
