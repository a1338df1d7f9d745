"""One attempt: start the command's processes on all hosts of a team, keep in touch, and end them together."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import accumulate

from tandem.cluster.launch.host_connection import HostConnection, start_agent
from tandem.cluster.launch.launch_order import LaunchOrder
from tandem.cluster.launch.remote_host import ALIVE, END, GRACE_SECONDS, SILENCE_SECONDS, STOP, HostJob
from tandem.cluster.launch.restart_policy import AttemptEnding, EndingKind, HostEnding
from tandem.cluster.launch.team import LaunchTeam
from tandem.cluster.launch.user_stop import UserStop
from tandem.process_exit import say


async def run_attempt(
    order: LaunchOrder, team: LaunchTeam, number: int, stop: UserStop, host_back: Callable[[], Awaitable[None]]
) -> AttemptEnding:
    """Start everything and wait for the end; `host_back` returns when all are to stop because a lost host is back."""
    began, regrouping = time.monotonic(), False
    connections = [
        HostConnection(host, await start_agent(order.ssh, host, {"run": asdict(job)}), not order.as_json)
        for host, job in zip(team.hosts, _jobs(order, team, number), strict=True)
    ]

    async def regroup() -> None:
        nonlocal regrouping
        await host_back()
        regrouping = True
        _send(connections, f"{STOP} {signal.SIGTERM:d}")

    async with _background(_keep_in_touch(connections), _obey_user(order, connections, stop), regroup()):
        endings = await _endings(order, connections)
    return AttemptEnding(
        hosts=endings, seconds=time.monotonic() - began, saved=True, asked_by=stop.number, regrouping=regrouping
    )


def _jobs(order: LaunchOrder, team: LaunchTeam, number: int) -> list[HostJob]:
    first_ranks = [0, *accumulate(host.processes for host in team.hosts)]
    return [
        HostJob(
            first_rank=first_rank,
            count=host.processes,
            world_size=first_ranks[-1],
            address=team.address,
            port=team.port,
            arguments=list(order.arguments),
            environment=order.environment(team.hosts, host, number),
            stop_seconds=order.stop_seconds,
        )
        for host, first_rank in zip(team.hosts, first_ranks, strict=False)
    ]


async def _endings(order: LaunchOrder, connections: Sequence[HostConnection]) -> list[HostEnding]:
    """How every host ended, in the order of time; upon the first failure all are ended."""
    endings: list[HostEnding] = []
    failed = False
    for ended in asyncio.as_completed([connection.ending() for connection in connections]):
        endings.append(await ended)
        # After a request to stop all do so by themselves.
        if not (failed or endings[-1].kind is EndingKind.FINISHED or endings[-1].kind.stopped):
            failed = True
            for connection in connections:
                connection.muted = True
            await _close(connections, order.stop_seconds)
    return endings


async def _close(connections: Sequence[HostConnection], seconds: float) -> None:
    await asyncio.gather(*(connection.close(seconds) for connection in connections))


def _send(connections: Sequence[HostConnection], word: str) -> None:
    for connection in connections:
        connection.send(word)


async def _keep_in_touch(connections: Sequence[HostConnection]) -> None:
    """Tell the agents that the launcher lives: they stop their processes when they hear nothing."""
    while True:
        await asyncio.sleep(SILENCE_SECONDS / 4)
        _send(connections, ALIVE)


async def _obey_user(order: LaunchOrder, connections: Sequence[HostConnection], stop: UserStop) -> None:
    """Pass on the user's wish to stop."""
    number = await stop.wait()
    say("asking all hosts to save and stop; once more to end them at once")
    _send(connections, f"{STOP} {number:d}")
    await stop.at_once.wait()
    say("ending all hosts at once; started again, the run goes on from its newest checkpoint")
    _send(connections, END)
    await _close(connections, GRACE_SECONDS)


@asynccontextmanager
async def _background(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Do some work beside a block, and give it up at its end."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
