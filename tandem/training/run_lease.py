"""A lease on a run's directory, for file systems that know no locks: a file that its holder touches every few seconds.

Whoever finds it asks whether the holder still lives: of a process on the same machine the system knows, of any other
the touches tell. Clocks are never compared.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tandem.errors import TandemError
from tandem.monitor.network_interfaces import host_name
from tandem.storage import write_json

# Seconds between two touches, and for how long a lease must lie still before its holder counts as dead.
BEAT_SECONDS, STILL_SECONDS = 5.0, 20.0
# Two that come at the same moment both write; after so long, the one that wrote first sees that it was second.
RACE_SECONDS = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROC_SELF = Path("/proc/self/stat")
_held: dict[Path, RunLease] = {}


class RunLease:
    """A lease of this process on a file."""

    def __init__(self, path: Path, beat_seconds: float = BEAT_SECONDS) -> None:
        self._path, self._beat_seconds = path, beat_seconds
        self._token = secrets.token_hex(8)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run lease", daemon=True)

    def take(self, pause: Callable[[float], object] = time.sleep) -> None:
        """Take the lease, unless a living process holds it."""
        holder = _read(self._path)
        if holder is not None and _lives(self._path, holder, pause):
            raise _held_by(self._path, holder)
        pid = os.getpid()
        mine = {"token": self._token, "host": host_name(), "process": pid, "started": _started(pid)}
        write_json(self._path, {**mine, "machine": _machine()})
        pause(RACE_SECONDS)
        self.check()
        self._thread.start()

    def check(self) -> None:
        """Insist that nobody else has taken the lease over, while this process was stopped for long."""
        holder = _read(self._path)
        if holder is not None and holder.get("token") != self._token:
            raise _held_by(self._path, holder)

    def release(self) -> None:
        """Give the lease back."""
        self._stopped.set()
        self._thread.join()
        holder = _read(self._path)
        if holder is not None and holder.get("token") == self._token:
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stopped.wait(self._beat_seconds):
            try:
                self.check()
            except TandemError:
                # It is another's now: what this process still wants to write is refused.
                return
            # A full disk has room for that.
            with suppress(OSError):
                os.utime(self._path)


@contextmanager
def leased(path: Path) -> Iterator[None]:
    """Hold a lease for the length of a block."""
    lease = RunLease(path)
    lease.take()
    _held[path.parent] = lease
    try:
        yield
    finally:
        del _held[path.parent]
        lease.release()


def check_lease(run: Path) -> None:
    """Refuse to write into a run whose lease this process held and has lost."""
    if run in _held:
        _held[run].check()


def has_lost_lease(run: Path) -> bool:
    """Whether this process held the lease of a run and has lost it."""
    try:
        check_lease(run)
    except TandemError:
        return True
    return False


def _read(path: Path) -> dict[str, Any] | None:
    """The holder's description; None if there is no lease, or nothing that could be one."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _lives(path: Path, holder: dict[str, Any], pause: Callable[[float], object]) -> bool:
    if holder.get("machine") == _machine():
        with suppress(psutil.Error, OSError, TypeError, ValueError, KeyError):
            return bool(_started(int(holder["process"])) == holder["started"])
        return False
    before = _touched(path)
    for _ in range(int(STILL_SECONDS)):
        pause(1.0)
        if _touched(path) != before:
            return True
    return False


def _started(pid: int) -> float:
    """When a process began, as the system counts: a number that no other process with that id has had."""
    if _PROC_SELF.exists():
        # In ticks since the system began: times of day move when the clock is set. The name before may hold spaces.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return psutil.Process(pid).create_time()


def _touched(path: Path) -> int:
    # By way of an open file: of a mere path, network file systems tell what they remember.
    with suppress(OSError), path.open("rb") as file:
        return os.fstat(file.fileno()).st_mtime_ns
    return 0


def _machine() -> str:
    """What two processes have in common that can see each other: the running system, and the container."""
    boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else host_name()
    with suppress(OSError):
        return f"{boot_id} {os.readlink('/proc/self/ns/pid')}"
    return boot_id


def _held_by(path: Path, holder: dict[str, Any]) -> TandemError:
    return TandemError(
        f"{path.parent}: another process is training here (process {holder.get('process')} on {holder.get('host')}); "
        "wait for it or stop it"
    )
