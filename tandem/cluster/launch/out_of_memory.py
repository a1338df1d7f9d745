"""Whether the kernel has ended a process for want of memory: counters of its control group, and the kernel's log."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tandem.cluster.control_groups import memory_groups

# Reading the kernel's log takes no time; a system that hangs over it is not worth waiting for.
LOG_SECONDS = 5


def oom_kills() -> int:
    """How many processes of this process's control group the kernel has ended for want of memory; 0 if untold."""
    # memory.events is of version 2, memory.oom_control of version 1.
    return sum(_count(group / name) for group in memory_groups() for name in ("memory.events", "memory.oom_control"))


def _count(path: Path) -> int:
    try:
        fields = dict(line.split() for line in path.read_text().splitlines())
        return int(fields.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def log_tells_oom(process: int) -> bool:
    """Whether the kernel's log says that a process was ended for want of memory; False if the log may not be read."""
    try:
        log = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=LOG_SECONDS, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(f"Killed process {process} (" in line for line in log.stdout.splitlines())
