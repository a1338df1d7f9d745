"""Network interfaces of this host: its name, the interface towards another host, link speed, bytes carried."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import NamedTuple

import psutil

from tandem.errors import TandemError

# Two processes with the same value share a host, whatever its name is; containers that share a kernel but not
# a network can be told apart with it, too.
HOST_VARIABLE = "TANDEM_HOST"


class Interface(NamedTuple):
    """A network interface and this host's address on it."""

    name: str
    address: str

    @property
    def local(self) -> bool:
        """Whether it is a loopback."""
        return ipaddress.ip_address(self.address).is_loopback


class Traffic(NamedTuple):
    """Bytes that an interface has carried."""

    sent: int
    received: int


def host_name() -> str:
    """The name of this host: $TANDEM_HOST, or its hostname."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


def host_identity() -> str:
    """A text that is the same for all processes on this host and for no other host, even one of the same name."""
    if HOST_VARIABLE in os.environ:
        return os.environ[HOST_VARIABLE]
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel} {Path('/proc/self/ns/net').readlink()}"
    except OSError:  # not Linux
        return socket.gethostname()


def interfaces() -> list[Interface]:
    """All interfaces with their addresses; one with several addresses comes several times."""
    families = (socket.AF_INET, socket.AF_INET6)
    return [
        Interface(name, address.address.partition("%")[0])
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family in families
    ]


def interface_towards(host: str) -> Interface:
    """The interface that the route to a host uses."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Nothing is sent: connecting a datagram socket only asks the kernel for the route.
            probe.connect(target)
            address = probe.getsockname()[0]
    except OSError as error:
        raise TandemError(f"{host}: no route from {host_name()} ({error.strerror or error}); check its name") from error
    for interface in interfaces():
        if interface.address == address:
            return interface
    # All of 127.0.0.0/8 is this host, whichever of its addresses the interface shows.
    return next(interface for interface in interfaces() if interface.local)


def interface_named(name: str) -> Interface:
    """An interface that the user has chosen."""
    found = interfaces()
    for interface in found:
        if interface.name == name:
            return interface
    names = ", ".join(sorted({interface.name for interface in found}))
    raise TandemError(f"cluster.interface: {host_name()} has no {name} with an address; choose one of {names}")


def link_speed(interface: str | None) -> int | None:
    """Mbit/s of a card, where the system knows it; what lies between the hosts may be slower."""
    stats = psutil.net_if_stats().get(interface or "")
    return stats.speed or None if stats else None


class TrafficMeter:
    """Counts the bytes that an interface carries; without one, none."""

    def __init__(self, interface: str | None) -> None:
        self._interface = interface
        self._before = self._read()

    def lap(self) -> Traffic:
        """Bytes that the interface has carried since the last call, for any program."""
        before, self._before = self._before, self._read()
        return Traffic(self._before.sent - before.sent, self._before.received - before.received)

    def _read(self) -> Traffic:
        if self._interface is None:
            return Traffic(0, 0)
        counters = psutil.net_io_counters(pernic=True)[self._interface]
        return Traffic(counters.bytes_sent, counters.bytes_recv)
