"""What `tandem launch` is asked to do: a command, the hosts to run it on, and how often it may be started again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tandem.cluster.join.launchers import HOSTS_VARIABLE, LAUNCH_ID_VARIABLE
from tandem.cluster.join.secret import TOKEN_VARIABLE
from tandem.monitor.network_interfaces import host_name, interfaces

# The launch and the host that a process was started for, by which what an attempt left behind is found.
MARK_VARIABLE = "TANDEM_LAUNCHED_ON"
# What a user may have set here to steer the libraries underneath, to find extensions or to reach a mirror, and wants on
# all hosts.
FORWARDED = ("OMP_", "MKL_", "NCCL_", "GLOO_", "CUDA_", "TORCH_", "PYTHONPATH", "RSYNC_RSH", TOKEN_VARIABLE)


@dataclass(frozen=True)
class LaunchHost:
    """A machine to start processes on, and how many."""

    name: str
    processes: int

    @property
    def here(self) -> bool:
        """Whether it is this machine, which needs no ssh."""
        return self.name in {"localhost", host_name(), *(interface.address for interface in interfaces())}

    @property
    def text(self) -> str:
        """The host as -H takes it."""
        return f"[{self.name}]:{self.processes}" if ":" in self.name else f"{self.name}:{self.processes}"


@dataclass(frozen=True, kw_only=True)
class LaunchOrder:
    """A command to start on several hosts, and how they are reached."""

    hosts: Sequence[LaunchHost]
    arguments: Sequence[str]
    """The `tandem` command that every process runs."""
    corpus: Path | None
    """The corpus that the command reads; it must be the same on all hosts."""
    run: Path | None
    """Directory of the run that the command trains; None for other commands."""
    mirrored: bool
    """Whether checkpoints are also kept where a host without the run's directory finds them."""
    as_json: bool
    """Whether a program reads the command's answer, so that no host's name may stand before it."""
    ssh: Sequence[str]
    port: int | None
    address: str | None
    join_seconds: int
    stop_seconds: float
    """Longest time that a process takes to save and stop when it is asked to."""
    restarts: int
    """How often in a row the command may be started again after a failure that another attempt may mend."""
    min_hosts: int
    """Fewest hosts to go on with when others do not come back."""
    identity: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tells this launch from all others; it may be shown."""
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    """The processes' shared secret, if the user has set none."""

    def mark(self, host: LaunchHost) -> str:
        """The mark that all processes of this launch on a host carry."""
        return f"{self.identity}-{host.name}"

    def environment(self, team: Sequence[LaunchHost], host: LaunchHost, attempt: int) -> dict[str, str]:
        """Variables for the processes of one host of a team."""
        return {
            # Unless the user has chosen one.
            TOKEN_VARIABLE: self.token,
            **{name: value for name, value in os.environ.items() if name.startswith(FORWARDED)},
            HOSTS_VARIABLE: ",".join(each.text for each in team),
            # Processes of an earlier attempt must not meet those of this one.
            LAUNCH_ID_VARIABLE: f"{self.identity}-{attempt}",
            MARK_VARIABLE: self.mark(host),
        }
