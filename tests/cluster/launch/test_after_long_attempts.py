"""After a long attempt that failed: whether the hosts are looked at, and that the user is heard meanwhile."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from tandem.cluster.launch import supervisor
from tandem.cluster.launch.launch_order import LaunchOrder
from tandem.cluster.launch.restart_policy import HEALTHY_SECONDS, AttemptEnding, HostEnding, HostReport
from tandem.cluster.launch.supervisor import Supervisor
from tandem.cluster.launch.team import Inspection
from tandem.cluster.launch.user_stop import UserStop
from tests.cluster.launch.test_team import facts, order

LOST = HostEnding.of("vm1", 137, HostReport(137, "rank 0 was ended by SIGKILL"))


class Looks:
    """Stands for looks at hosts: the first one finds all of them, any other one is interrupted and never ends."""

    def __init__(self, stop: UserStop) -> None:
        self._stop, self.count = stop, 0

    async def __call__(self, asked: LaunchOrder, *_: object) -> Inspection:
        self.count += 1
        if self.count > 1:
            self._stop._hear(signal.SIGINT)
            await asyncio.Event().wait()
        return Inspection({host: facts(True, 400) for host in asked.hosts})


def ended_after_long(restarts: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Exit code of a launch whose first attempt fails after hours, and how often the hosts were looked at."""

    async def fail(*_: object) -> AttemptEnding:
        return AttemptEnding([LOST], HEALTHY_SECONDS, saved=True)

    async def run() -> tuple[int, int]:
        stop = UserStop()
        looks = Looks(stop)
        monkeypatch.setattr(supervisor, "inspect_hosts", looks)
        monkeypatch.setattr(supervisor, "run_attempt", fail)
        launch = Supervisor(replace(order(), restarts=restarts, address="10.0.0.1"), stop)
        return await asyncio.wait_for(launch.run(), 60), looks.count

    return asyncio.run(run())


def test_nobody_is_looked_at_where_no_restart_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended_after_long(restarts=0, monkeypatch=monkeypatch) == (137, 1)


def test_ctrl_c_is_heard_while_hosts_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    code, looks = ended_after_long(restarts=3, monkeypatch=monkeypatch)
    assert (code, looks) == (130, 2)
