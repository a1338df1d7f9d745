"""Several hosts on one machine: network namespaces with a cable between them, for tests and measurements.

    with Rig() as rig:
        vm1, vm2 = rig.hosts
        rig.limit("100mbit")
        rig.run(vm2, ["python", "-m", "tandem", ...], {"RANK": "1", ...})

Every host has a name, an address, a network card `veth0` and a loopback of its own, and knows the others by name;
the file system and the processors are the machine's, unless the hosts are `bare`. Needs root on Linux. Whatever the
rig has started or made is gone when it is left, however it is left.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, Any

# The same on every host, as on rented machines, because a run's settings are the same on all of them.
CARD = "veth0"
NOBODY = "02:00:00:00:00:99"
SSH_PORT = 4444
# A bucket small enough that a message of a megabyte feels the limit, large enough not to slow a link of 1 Gbit/s.
BURST, LATENCY = "256kb", "50ms"
# How long a slowed process is let run at a time: short against a step, so that every step takes its time.
SLICE_SECONDS = 0.01
# `ip netns exec` puts these over the machine's own in /etc.
CONFIG_DIRECTORY = Path("/etc/netns")
_numbers = count()


class RigError(Exception):
    """The rig cannot be made or used here."""


@dataclass(frozen=True)
class Host:
    """A host of the rig: a network namespace with a name and an address."""

    name: str
    address: str
    namespace: str
    home: Path | None = None
    """The home directory of whoever is there, at the same path on all hosts of the rig; None if it is the machine's."""
    core: int | None = None
    """The one processor core that it has; None if it has all of the machine's."""

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command to run it there; none of it forks, so that the id is that of the command."""
        # Each command has a table of mounts of its own, so that no other host sees this one's home.
        at_home = f"mount --bind {shlex.quote(str(self.disk))} {shlex.quote(str(self.home))} && " if self.home else ""
        named = ("unshare", "--uts", "sh", "-c", f'{at_home}hostname {self.name} && exec "$@"', "sh")
        pinned = () if self.core is None else ("taskset", "--cpu-list", str(self.core))
        return ("ip", "netns", "exec", self.namespace, *named, *pinned)

    @property
    def disk(self) -> Path:
        """Where the host's own home lies, seen from the machine."""
        assert self.home is not None
        return self.home.with_name(self.name)


@dataclass(frozen=True)
class Ssh:
    """ssh options to log in to the hosts from one another, with throw-away keys."""

    options: tuple[str, ...]
    """Options to put after `ssh`."""
    config: Path
    """Configuration file with the same options, for `ssh -F`."""

    @property
    def command(self) -> list[str]:
        return ["ssh", *self.options]


class Rig:
    """Hosts vm1, vm2 and so on, joined by one cable, or by a switch if there are more than two.

    Those that are `bare` share no files under the home directory and no processor core, as far as there are enough.
    """

    def __init__(self, hosts: int = 2, *, bare: bool = False) -> None:
        # Two rigs of one process differ by the second number.
        unique = f"tandem-{os.getpid()}-{next(_numbers)}"
        self.hosts = tuple(
            Host(f"vm{number}", f"10.99.0.{number}", f"{unique}-vm{number}") for number in range(1, hosts + 1)
        )
        self._bare = bare
        self._switch = f"{unique}-switch"
        self._limited = False
        self._ssh: Ssh | None = None
        self._processes: list[subprocess.Popen[str]] = []
        self._cleanup = ExitStack()

    def __enter__(self) -> Rig:
        with self._cleanup:
            temporary = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tandem-rig-"))
            self._directory = Path(temporary)
            if self._bare:
                self._give_homes_and_cores()
            for host in self.hosts:
                self._add_namespace(host.namespace)
                self._write_names(host)
            self._connect()
            # Added last, so it comes first.
            self._cleanup.callback(self._end_processes)
            # Everything is there: keep it until the rig is left.
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def limit(self, rate: str | None) -> None:
        """Limit the rate at which every host sends, to `100mbit` for example; None lifts the limit."""
        for host in self.hosts:
            card = ["tc", "-n", host.namespace, "qdisc"]
            if rate is not None:
                limiter = ["tbf", "rate", rate, "burst", BURST, "latency", LATENCY]
                _do([*card, "replace", "dev", CARD, "root", *limiter])
            elif self._limited:
                _do([*card, "delete", "dev", CARD, "root"])
        self._limited = rate is not None

    def pull_cable(self, host: Host) -> None:
        """Take a host off the network without a word to anybody, as when its power fails."""
        _do(["ip", "-n", host.namespace, "link", "set", CARD, "down"])

    def plug_in(self, host: Host) -> None:
        """Bring a host back to the network."""
        _do(["ip", "-n", host.namespace, "link", "set", CARD, "up"])

    def swallow(self, host: Host) -> None:
        """Lose all packets to and from a host while its card is up, as a firewall or a switch on the way may do."""
        for one, other in self._neighbours(host):
            # Addressed to a card that does not exist.
            _do(["ip", "-n", one, "neigh", "replace", other, "lladdr", NOBODY, "nud", "permanent", "dev", CARD])

    def let_through(self, host: Host) -> None:
        """Lose no packets any more."""
        for one, other in self._neighbours(host):
            _do(["ip", "-n", one, "neigh", "delete", other, "dev", CARD])

    def _neighbours(self, host: Host) -> Iterator[tuple[str, str]]:
        """Namespace and address of all pairs of which a host is one."""
        for other in self.hosts:
            if other is not host:
                yield host.namespace, other.address
                yield other.namespace, host.address

    def run(
        self,
        host: Host,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a process on a host; `env` comes on top of this process's environment."""
        process = subprocess.Popen(
            [*host.inside, *command],
            env={**os.environ, **(env or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        """End a process that was started here, with all it has started in turn."""
        # One that was waited for may have passed its number on to somebody else.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def bytes_sent(self, host: Host) -> int:
        """Bytes that the host's network card has sent since it was made."""
        shown = json.loads(_do(["ip", "-n", host.namespace, "-json", "-statistics", "link", "show", "dev", CARD]))
        return int(shown[0]["stats64"]["tx"]["bytes"])

    def serve_ssh(self) -> Ssh:
        """Start an ssh server on every host, which takes the rig's key."""
        if self._ssh is None:
            if reason := ssh_unavailable():
                raise RigError(reason)
            user_key, host_key = self._directory / "user_key", self._directory / "host_key"
            for key in (user_key, host_key):
                _do(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
            for host in self.hosts:
                self._start_sshd(host)
            self._ssh = self._client_settings(user_key)
        return self._ssh

    def power_off(self, host: Host) -> None:
        """End everything on a host at once, its ssh server, too; the others find nobody there any more."""
        while left := _do(["ip", "netns", "pids", host.namespace]).split():
            for identifier in left:
                _end(int(identifier))

    def power_on(self, host: Host) -> None:
        """Start the ssh server of a host that was off."""
        self._start_sshd(host)

    def _add_namespace(self, name: str) -> None:
        _do(["ip", "netns", "add", name])
        self._cleanup.callback(_do, ["ip", "netns", "delete", name])
        _do(["ip", "-n", name, "link", "set", "lo", "up"])

    def _give_homes_and_cores(self) -> None:
        home = self._directory / "home"
        cores = sorted(os.sched_getaffinity(0))
        self.hosts = tuple(
            replace(host, home=home, core=cores[number % len(cores)]) for number, host in enumerate(self.hosts)
        )
        for directory in (home, *(host.disk for host in self.hosts)):
            directory.mkdir()

    def _write_names(self, host: Host) -> None:
        directory = CONFIG_DIRECTORY / host.namespace
        directory.mkdir(parents=True)
        self._cleanup.callback(shutil.rmtree, directory)
        names = ["127.0.0.1 localhost", "::1 localhost", *(f"{other.address} {other.name}" for other in self.hosts)]
        (directory / "hosts").write_text("\n".join(names) + "\n")
        if host.home:
            # What ssh and its server take for root's home.
            users = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
            homes = ([*user[:5], str(host.home), *user[6:]] if user[0] == "root" else user for user in users)
            (directory / "passwd").write_text("".join(":".join(user) + "\n" for user in homes))

    def _connect(self) -> None:
        pair = ["type", "veth", "peer", "name"]
        if len(self.hosts) == 2:
            first, second = (host.namespace for host in self.hosts)
            _do(["ip", "-n", first, "link", "add", CARD, *pair, CARD, "netns", second])
        else:
            self._add_namespace(self._switch)
            _do(["ip", "-n", self._switch, "link", "add", "switch", "type", "bridge"])
            _do(["ip", "-n", self._switch, "link", "set", "switch", "up"])
            for host in self.hosts:
                port = f"port-{host.name}"
                _do(["ip", "-n", host.namespace, "link", "add", CARD, *pair, port, "netns", self._switch])
                _do(["ip", "-n", self._switch, "link", "set", port, "master", "switch", "up"])
        for host in self.hosts:
            _do(["ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", CARD])
            _do(["ip", "-n", host.namespace, "link", "set", CARD, "up"])

    def _start_sshd(self, host: Host) -> None:
        config = self._directory / f"sshd-{host.name}"
        config.write_text(
            f"Port {SSH_PORT}\n"
            # Where a newcomer's ssh and scp look.
            f"{'Port 22' if host.home else ''}\n"
            f"{'Subsystem sftp internal-sftp' if host.home else ''}\n"
            f"ListenAddress {host.address}\n"
            f"HostKey {self._directory / 'host_key'}\n"
            f"AuthorizedKeysFile {self._directory / 'user_key'}.pub{' .ssh/authorized_keys' if host.home else ''}\n"
            f"PidFile {config}.pid\n"
            "StrictModes no\n"
            "UsePAM no\n"
            "PermitRootLogin yes\n"
            # Whoever logs in finds the package that this process has found.
            f"SetEnv PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n"
        )
        # sshd wants it and only the service of that name makes it; other servers may use it, so it stays.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        # It insists on being started by its full path.
        server = self.run(host, [str(_sshd()), "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE)
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if "listening" in line:
                break
        else:
            raise RigError(f"sshd on {host.name} has ended: {' '.join(''.join(said).split())}")
        # It would stand still once the pipe is full.
        threading.Thread(target=deque, args=(server.stderr, 0), daemon=True).start()

    def _client_settings(self, user_key: Path) -> Ssh:
        settings = {
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
        }
        options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        everywhere = {"Port": SSH_PORT, "IdentityFile": user_key, **settings}
        lines = [f"Host {host.name}\nHostName {host.address}\n" for host in self.hosts]
        lines += ["Host *\n", *(f"{name} {value}\n" for name, value in everywhere.items())]
        config = self._directory / "ssh_config"
        config.write_text("".join(lines))
        return Ssh(("-p", str(SSH_PORT), "-i", str(user_key), *options), config)

    def _end_processes(self) -> None:
        """End everything that was started, then whatever that has left behind on the hosts."""
        for process in self._processes:
            self.end(process)
        for host in self.hosts:
            self.power_off(host)


@contextmanager
def slowed(process: subprocess.Popen[str], share: float) -> Iterator[None]:
    """Slow a process down by letting it run for only this share of the time."""
    stop = threading.Event()

    def take_turns() -> None:
        while process.poll() is None and not stop.is_set():
            process.send_signal(signal.SIGSTOP)
            time.sleep(SLICE_SECONDS / share - SLICE_SECONDS)
            process.send_signal(signal.SIGCONT)
            stop.wait(SLICE_SECONDS)

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@cache
def unavailable() -> str | None:
    """Why there can be no rig here, or None."""
    if os.geteuid():
        return "hosts on one machine need root"
    if missing := [name for name in ("ip", "tc", "unshare", "taskset") if shutil.which(name) is None]:
        return f"{', '.join(missing)} missing: install iproute2 and util-linux"
    try:
        with Rig() as rig:
            rig.limit("1gbit")
            ended = rig.run(rig.hosts[0], ["true"], stderr=subprocess.PIPE).communicate()[1]
    except (RigError, OSError) as error:
        return f"no hosts on one machine here: {error}"
    return f"no hosts on one machine here: {ended.strip()}" if ended else None


def ssh_unavailable() -> str | None:
    """Why nobody can log in to the rig's hosts, or None."""
    return None if _sshd() and shutil.which("ssh") else "ssh or sshd missing: install openssh-server"


def mpirun_unavailable() -> str | None:
    """Why Open MPI cannot start anything on the rig's hosts, or None."""
    return ssh_unavailable() or (None if shutil.which("mpirun") else "mpirun missing: install openmpi-bin")


def _sshd() -> str | None:
    # Often beyond the path of those who are not root.
    return shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


def _end(identifier: int) -> None:
    """End a process that is nobody's child here, and wait until it has ended."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(identifier)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.poll()
        finally:
            os.close(descriptor)


def _do(command: Sequence[str]) -> str:
    """Run a command to its end; what it printed."""
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode:
        raise RigError(f"{' '.join(command)}: {ended.stderr.strip() or ended.returncode}")
    return ended.stdout
