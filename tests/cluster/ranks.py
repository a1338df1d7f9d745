"""Environments of processes that a test starts itself, each as if on the host that is named for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


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


def free_port() -> int:
    """A port that nobody uses."""
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])
