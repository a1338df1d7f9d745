"""Heartbeats between hosts with a real network between them, which is cut."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pytest

from testbed.beating_processes import PATIENT, BeatingProcess, members
from testbed.network_rig import Rig

pytestmark = pytest.mark.slow

GONE = "; its host does not answer: it is down, or the network to it is cut"


def members_on(rig: Rig, *, patience: float = PATIENT) -> AbstractContextManager[list[BeatingProcess]]:
    """A process on the first host and two on the second."""
    places = (rig.hosts[0], rig.hosts[1], rig.hosts[1])

    def start(rank: int, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return rig.run(places[rank], command, environment, stdin=pipe, stdout=pipe)

    addresses = [host.address for host in places]
    return members(*(host.name for host in places), patience=patience, addresses=addresses, start=start)


def told(member: BeatingProcess) -> tuple[object, ...]:
    """Ranks, host, cause and end of the sentence of a silence."""
    kind, ranks, host, cause, _, words, speaks = member.hears() or []
    assert kind == "silent"
    return ranks, host, cause, words[-len(GONE) :], speaks


def test_a_host_that_is_off_the_network_is_told_from_a_stopped_process_and_comes_back(rig: Rig) -> None:
    vm2 = rig.hosts[1]
    with members_on(rig) as (first, second, third):
        rig.pull_cable(vm2)
        # Both of its processes in one sentence.
        assert told(first) == ([1, 2], "vm2", "unreachable", GONE, True)
        # From there it is the other host that is gone, and one of the two says so.
        assert told(second) == ([0], "vm1", "unreachable", GONE, True)
        assert told(third) == ([0], "vm1", "unreachable", GONE, False)
        rig.plug_in(vm2)
        assert sorted((first.hears() or [])[:3] for _ in range(2)) == [["returned", 1, "vm2"], ["returned", 2, "vm2"]]
        assert second.hears() == ["returned", 0, "vm1", True]


def test_after_patience_both_sides_of_a_cut_end(rig: Rig) -> None:
    vm2 = rig.hosts[1]
    with members_on(rig, patience=1) as running:
        rig.swallow(vm2)
        try:
            for member, gone in zip(running, ("ranks 1, 2 on vm2", "rank 0 on vm1", "rank 0 on vm1"), strict=True):
                assert told(member)[2] == "unreachable"
                kind, words, _ = member.hears() or []
                assert kind == "lost"
                assert words.startswith(f"{gone} does not answer since ")
                assert words.endswith(" s: the host or the network to it is gone")
                assert member.end() == 75
        finally:
            rig.let_through(vm2)
