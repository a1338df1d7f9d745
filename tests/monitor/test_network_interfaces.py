"""This host on the network: real interfaces, real routes, real bytes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tandem.errors import TandemError
from tandem.monitor.network_interfaces import (
    HOST_VARIABLE,
    Interface,
    Traffic,
    TrafficMeter,
    host_identity,
    host_name,
    interface_named,
    interface_towards,
    interfaces,
)

LOOPBACK = next(interface for interface in interfaces() if interface.address == "127.0.0.1")


@pytest.fixture(autouse=True)
def no_given_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOST_VARIABLE, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_the_route_to_oneself_is_the_loopback(host: str) -> None:
    interface = interface_towards(host)
    assert interface.name == LOOPBACK.name
    assert interface.local


def test_every_address_of_this_host_is_its_own() -> None:
    for interface in interfaces():
        if not Interface("", interface.address).local and ":" not in interface.address:
            assert interface_towards(interface.address).address == interface.address


def test_a_host_without_a_route_is_named() -> None:
    # RFC 6761: no name below .invalid ever exists.
    with pytest.raises(
        TandemError, match=rf"^vm1.invalid: no route from {socket.gethostname()} \(.+\); check its name"
    ):
        interface_towards("vm1.invalid")


def test_an_interface_by_its_name() -> None:
    assert interface_named(LOOPBACK.name).name == LOOPBACK.name


def test_an_unknown_interface_is_answered_with_those_there_are() -> None:
    with pytest.raises(TandemError) as error:
        interface_named("ib7")
    message, _, listed = str(error.value).partition("choose one of ")
    assert message == f"cluster.interface: {socket.gethostname()} has no ib7 with an address; "
    assert listed.split(", ") == sorted({interface.name for interface in interfaces()})
    assert LOOPBACK.name in listed.split(", ")


@pytest.mark.parametrize(
    ("address", "local"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False)]
)
def test_loopback_addresses_lead_nowhere_else(address: str, local: bool) -> None:
    assert Interface("x", address).local is local


def identity_in_a_process(**environment: str) -> str:
    script = "from tandem.monitor import network_interfaces as n; print(n.host_name(), n.host_identity(), sep='|')"
    command = [sys.executable, "-c", script]
    return subprocess.check_output(command, text=True, env={**os.environ, **environment}).strip()


def test_processes_of_a_host_know_that_they_share_it() -> None:
    assert identity_in_a_process() == f"{host_name()}|{host_identity()}"
    assert host_name() == socket.gethostname()
    # More than a name, which two rented machines may have in common.
    assert host_identity() != host_name()


def test_a_given_name_tells_hosts_apart() -> None:
    assert identity_in_a_process(TANDEM_HOST="b") == "b|b"


def test_the_meter_counts_what_was_really_sent() -> None:
    message = b"x" * 3_000_000
    meter = TrafficMeter(LOOPBACK.name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as sender, server.accept()[0] as receiver:
            sent = 0
            while sent < len(message):
                sent += sender.send(message[sent : sent + 65536])
                receiver.recv(65536)
        traffic = meter.lap()
    # Others may be talking over the loopback, too, so there is no upper limit.
    assert traffic.sent >= len(message)
    assert traffic.received >= len(message)


def test_without_an_interface_nothing_is_counted() -> None:
    assert TrafficMeter(None).lap() == Traffic(0, 0)
