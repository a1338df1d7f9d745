"""The hosts of an attempt: which of those that were inspected can be used, which one leads, do they suffice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.remote_host import HostFacts
from tandem.errors import TandemError


class UnreachableError(TandemError):
    """A host that does not answer."""


@dataclass
class Inspection:
    """The facts about those hosts that can be used, and what is wrong with the others, in words that begin with it."""

    facts: dict[LaunchHost, HostFacts] = field(default_factory=dict)
    faults: dict[LaunchHost, TandemError] = field(default_factory=dict)

    @property
    def newest_step(self) -> int | None:
        """Step of the newest checkpoint that any of the hosts has."""
        return max((fact.newest_step for fact in self.facts.values() if fact.newest_step is not None), default=None)

    def said(self) -> str:
        """All faults in one sentence."""
        return "; ".join(map(str, self.faults.values()))


@dataclass(frozen=True)
class LaunchTeam:
    """The hosts of an attempt, and where their processes meet."""

    hosts: Sequence[LaunchHost]
    """The first of them has the run."""
    lost: Sequence[LaunchHost]
    """Hosts of the launch that cannot be used now."""
    address: str
    port: int


@dataclass(frozen=True)
class LastLeader:
    """The first host of the last attempt, and the newest checkpoint that there was at its start."""

    host: LaunchHost
    newest_step: int


def why_not_enough(order: LaunchOrder, found: Inspection, last: LastLeader) -> str | None:
    """Why the hosts that can be used are not enough to go on with."""
    if found.faults and len(found.facts) < order.min_hosts:
        hint = "" if order.min_hosts < len(order.hosts) else " (--min-hosts allows to go on with fewer)"
        return f"{len(found.facts)} of {order.min_hosts} hosts can be used{hint}: {found.said()}"
    if order.run is None or last.host not in found.faults:
        # Who has written the run is here.
        return None
    having = [fact for fact in found.facts.values() if fact.has_run]
    if order.mirrored and len(having) < len(found.facts):
        return None
    here = ", ".join(host.name for host in found.facts)
    remedy = "a disk that all hosts share or checkpoint.mirror would let the others go on"
    if not having:
        return f"{last.host.name}: lost with the only copy of {order.run}, of which {here} has nothing; {remedy}"
    newest = found.newest_step or 0
    if newest < last.newest_step:
        had = f"of {order.run} {here} has only step {newest:,}"
        return f"{last.host.name}: lost with the checkpoint of step {last.newest_step:,}; {had}; {remedy}"
    return None


def leader_first(order: LaunchOrder, found: Inspection, newest_known: int = 0) -> list[LaunchHost]:
    """The hosts as they were given, but first the leader: the one whose checkpoint is the newest, and goes to all."""

    def suitability(host: LaunchHost) -> tuple[bool, bool, int]:
        fact = found.facts[host]
        step = -1 if fact.newest_step is None else fact.newest_step
        # A host without the run gets it from the mirror; an old copy would go on alone if the mirror cannot be reached.
        old = order.mirrored and fact.has_run and step < newest_known
        return not old, fact.has_run, step

    first = max(found.facts, key=suitability)
    return [first, *(host for host in found.facts if host is not first)]


def meeting_port(order: LaunchOrder, host: LaunchHost, facts: HostFacts) -> int:
    """The port on the first host at which its processes and the others meet."""
    if not facts.free_port:
        raise TandemError(f"{host.name}: port {order.port} cannot be used; choose another --port")
    return facts.free_port


def meeting_address(order: LaunchOrder, facts: Mapping[LaunchHost, HostFacts], first: LaunchHost) -> str:
    """The first host's address, as the network between the hosts knows it."""
    if order.address is not None and first is order.hosts[0]:
        return order.address
    if not first.here:
        own_address = facts[first].own_address
        if own_address is None:
            raise TandemError(f"{first.name}: its ssh server does not tell its address; give --address")
        return own_address
    # This machine is the first host: the others have seen where the launcher's connection came from.
    return next((fact.launcher_address for fact in facts.values() if fact.launcher_address is not None), "127.0.0.1")
