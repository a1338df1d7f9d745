"""Environments of processes that a test starts itself, each as if on the host that is named for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import count


def rank_environments(hosts: Sequence[str]) -> list[dict[str, str]]:
    """The environment of each rank, given the host of every one; they meet on the loopback."""
    port = str(free_port())
    return [
        {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(hosts)),
            "LOCAL_RANK": str(hosts[:rank].count(host)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TANDEM_HOST": host,
        }
        for rank, host in enumerate(hosts)
    ]


# Below those that the system gives to outgoing connections, of which one might come before a slow process has begun to
# listen. Test processes begin at different places.
PORTS = count(20_000 + 97 * (os.getpid() % 100))


def free_port() -> int:
    """A port that nobody uses, and that no other call in this process has given."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("ports have no end")
