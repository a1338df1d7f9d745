"""A look at the hosts before every attempt, over ssh: the facts about them, and what is wrong with them."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tandem.cluster.launch.host_connection import start_agent
from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.remote_host import HostFacts
from tandem.cluster.launch.restart_policy import SSH_FAILED
from tandem.cluster.launch.team import Inspection, UnreachableError
from tandem.cluster.source_version import package_version
from tandem.errors import TandemError


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
