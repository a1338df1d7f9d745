"""A look at the hosts before every attempt: which of them can be used, and which of them has the run."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tandem.cluster.launch.host_connection import start_agent
from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.remote_host import HostFacts
from tandem.cluster.launch.restart_policy import SSH_FAILED
from tandem.cluster.source_version import package_version
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


async def inspect_hosts(
    order: LaunchOrder, hosts: Sequence[LaunchHost], seconds: float, digest: str | None = None
) -> Inspection:
    """Look at some hosts at once; `digest` is that of the corpus they must have, if not that of the first."""
    answers = await asyncio.gather(*(_inspect(order, host, seconds) for host in hosts), return_exceptions=True)
    found = Inspection()
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, HostFacts):
            found.facts[host] = answer
        elif isinstance(answer, TandemError):
            found.faults[host] = answer
        else:
            raise answer
    _set_aside_unlike(order, found, digest)
    return found


async def _inspect(order: LaunchOrder, host: LaunchHost, seconds: float) -> HostFacts:
    wanted = {
        "corpus": None if order.corpus is None else str(order.corpus),
        "run": None if order.run is None else str(order.run),
        "port": order.port,
        "mark": order.mark(host),
        "stop_seconds": order.stop_seconds,
    }
    process = await start_agent(order.ssh, host, {"inspect": wanted})
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError as error:
        process.kill()
        raise UnreachableError(f"{host.name}: no answer within {seconds:.0f} s; is it overloaded?") from error
    except asyncio.CancelledError:
        process.kill()
        raise
    last_line = (err.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    if process.returncode == SSH_FAILED and not host.here:
        remedy = f"make sure that `{shlex.join(order.ssh)} {host.name} true` works"
        raise UnreachableError(f"{host.name}: {last_line}; {remedy}")
    if process.returncode:
        raise TandemError(f"{host.name}: {last_line}; install Tandem there as here ({sys.executable} in {Path.cwd()})")
    # Whatever a login script prints comes before.
    try:
        facts = HostFacts(**json.loads(out.decode().strip().splitlines()[-1]))
    except (ValueError, TypeError, IndexError) as error:
        raise TandemError(f"{host.name}: has another version of Tandem; install the same everywhere") from error
    if facts.fault is not None:
        raise TandemError(f"{host.name}: {facts.fault}")
    return facts


def _set_aside_unlike(order: LaunchOrder, found: Inspection, digest: str | None) -> None:
    """Insist on one version of the package and one corpus everywhere."""
    version, digest = package_version(), digest or next((fact.corpus_digest for fact in found.facts.values()), None)
    for host, fact in list(found.facts.items()):
        fault = None
        if fact.version != version:
            fault = f"{host.name} has {fact.version}, but here is {version}; install the same everywhere"
        elif fact.corpus_digest != digest:
            first = f"not {str(digest)[:12]}; copy one of them to all hosts"
            fault = f"{host.name} has another corpus at {order.corpus}: {str(fact.corpus_digest)[:12]}, {first}"
        if fault is not None:
            del found.facts[host]
            found.faults[host] = TandemError(fault)


def put_in_order(facts: Mapping[LaunchHost, HostFacts]) -> list[LaunchHost]:
    """The hosts as they were given, but first the one with the newest checkpoint, which all the others get it from."""
    hosts = list(facts)
    first = max(
        hosts, key=lambda host: (facts[host].has_run, -1 if (step := facts[host].newest_step) is None else step)
    )
    return [first, *(host for host in hosts if host is not first)]


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
