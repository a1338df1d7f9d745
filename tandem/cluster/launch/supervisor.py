"""`tandem launch`: runs a command on several hosts, and starts it again when it fails, with the hosts that are left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tandem.cluster.launch.attempt import run_attempt
from tandem.cluster.launch.inspection import inspect_hosts
from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.restart_policy import (
    HEALTHY_SECONDS,
    AttemptEnding,
    End,
    StartAgain,
    after_attempt,
    after_failure,
    look_again_seconds,
)
from tandem.cluster.launch.team import (
    Inspection,
    LastLeader,
    LaunchTeam,
    UnreachableError,
    leader_first,
    meeting_address,
    meeting_port,
    why_not_enough,
)
from tandem.cluster.launch.user_stop import UserStop
from tandem.errors import TandemError
from tandem.monitor.console_stream import never_blocking_output
from tandem.process_exit import say

# To connect and look around, beside the time that the remains of an earlier attempt get to end.
LOOK_SECONDS = 30


def launch(order: LaunchOrder) -> int:
    """Check all hosts, start everything, wait, start again where that may help; the exit code of the whole."""
    # The loop must not wait for a terminal that nobody reads: agents stop what they run if they hear nothing from here.
    with never_blocking_output():
        return asyncio.run(_supervised(order))


async def _supervised(order: LaunchOrder) -> int:
    stop = UserStop()
    with stop.listening():
        return await Supervisor(order, stop).run()


class Supervisor:
    """Attempt after attempt, until one ends well or nothing more can be done."""

    def __init__(self, order: LaunchOrder, stop: UserStop) -> None:
        self._order, self._stop = order, stop
        self._attempts, self._failures, self._code = 0, 0, 0
        self._losses = Counter[LaunchHost]()
        self._digest: str | None = None
        """Digest of the corpus that the first attempt found."""
        self._last_leader = LastLeader(order.hosts[0], 0)

    async def run(self) -> int:
        found = await self._stop.unless_asked(inspect_hosts(self._order, self._order.hosts, self._order.join_seconds))
        if found is None:
            return self._stop.code
        if found.faults:
            raise TandemError(found.said())
        self._digest = next(iter(found.facts.values())).corpus_digest
        team: LaunchTeam | None = self._team(found)
        while team is not None:
            self._attempts += 1
            ending = await run_attempt(self._order, team, self._attempts, self._stop, self._host_back_of(team))
            ending = await self._look_for_gain(team, ending)
            self._code = ending.cause.code
            team = await self._next_team(after_attempt(ending, self._failures, self._order.restarts))
        return self._code

    async def _next_team(self, move: End | StartAgain) -> LaunchTeam | None:
        """The hosts of the next attempt, after as many pauses as it takes; None when there is to be none."""
        while True:
            if move.words:
                say(move.words)
            if isinstance(move, End):
                self._code = move.code
                return None
            self._failures = move.failures
            found = await self._stop.unless_asked(self._look_after(move.pause))
            if found is None:
                self._code = self._stop.code
                return None
            if not (trouble := why_not_enough(self._order, found, self._last_leader)):
                return self._team(found)
            move = after_failure(trouble, self._code, self._failures, self._order.restarts)

    async def _look_after(self, pause: float) -> Inspection:
        await asyncio.sleep(pause)
        return await self._look(self._order.hosts)

    async def _look(self, hosts: Sequence[LaunchHost]) -> Inspection:
        return await inspect_hosts(self._order, hosts, self._order.stop_seconds + LOOK_SECONDS, self._digest)

    def _team(self, found: Inspection) -> LaunchTeam:
        """The usable hosts as a team; who leads it and who is missing is said."""
        order, last = self._order, self._last_leader
        hosts = leader_first(order, found, last.newest_step if last.host in found.faults else 0)
        self._last_leader = LastLeader(hosts[0], found.newest_step or 0)
        self._losses.update(found.faults.keys())
        if found.faults:
            say(f"going on with {', '.join(host.name for host in hosts)}, without {found.said()}")
        if hosts[0] is not next(iter(found.facts)):
            say(f"{hosts[0].name} has the newest checkpoint (step {found.newest_step or 0:,}) and is the first host")
        port = meeting_port(order, hosts[0], found.facts[hosts[0]])
        return LaunchTeam(hosts, list(found.faults), meeting_address(order, found.facts, hosts[0]), port)

    async def _look_for_gain(self, team: LaunchTeam, ending: AttemptEnding) -> AttemptEnding:
        """After a long attempt, find out whether it has left a newer checkpoint: only then does it count as healthy."""
        long, again = ending.seconds >= HEALTHY_SECONDS, self._order.restarts and ending.asked_by is None
        if not (self._order.run and long and again and ending.cause.kind.mendable):
            return ending
        found = await self._stop.unless_asked(self._look(team.hosts))
        if found is None:
            return ending
        return replace(ending, saved=(found.newest_step or 0) > self._last_leader.newest_step)

    def _host_back_of(self, team: LaunchTeam) -> Callable[[], Awaitable[None]]:
        """Waits until a lost host of the team is back, for ever if none is lost."""

        async def any_back() -> None:
            watching = [asyncio.create_task(self._back(host)) for host in team.lost]
            try:
                await asyncio.wait(
                    watching or [asyncio.get_running_loop().create_future()], return_when="FIRST_COMPLETED"
                )
            finally:
                for watch in watching:
                    watch.cancel()

        return any_back

    async def _back(self, host: LaunchHost) -> None:
        """Look for a lost host every so often, until it can be used again."""
        said = ""
        while True:
            await asyncio.sleep(look_again_seconds(self._losses[host]))
            found = await self._look([host])
            if host in found.facts:
                say(f"{host.name}: is back; asking the others to save and stop, to go on with it")
                return
            # It answers, but is not as it was: that would never be found out.
            if not isinstance(found.faults[host], UnreachableError) and said != found.said():
                said = found.said()
                say(f"{said}; until then the run goes on without it")
