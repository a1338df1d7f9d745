"""Control groups: what the system allows this process, and all that share its group, to use of a host's memory."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def memory_groups() -> list[Path]:
    """The directories that tell of this process's groups for memory, of both versions of control groups; maybe none."""
    try:
        groups = [line.split(":", 2) for line in OWN_GROUPS.read_text().splitlines()]
    except OSError:
        return []
    found = []
    for _, controllers, group in groups:
        place = group.lstrip("/")
        if not controllers:
            found += [CGROUPS / place, CGROUPS / "unified" / place]
        elif "memory" in controllers.split(","):
            found.append(CGROUPS / "memory" / place)
    return found


def memory_limit() -> int | None:
    """The most bytes that this process's groups, and those around them, may use; None if nobody has set a limit."""
    limits = []
    for group in memory_groups():
        around = [each for each in (group, *group.parents) if each.is_relative_to(CGROUPS)]
        limits += [_limit(each / name) for each in around for name in ("memory.max", "memory.limit_in_bytes")]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max" is no limit
        return None
