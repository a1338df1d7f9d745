"""Which hosts make a team, and who leads it, as tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
from tandem.cluster.launch.remote_host import HostFacts
from tandem.cluster.launch.team import Inspection, LastLeader, UnreachableError, leader_first, why_not_enough

VM1, VM2, VM3 = (LaunchHost(f"vm{number}", 1) for number in (1, 2, 3))
NOTHING, NO_STEP = (False, None), (True, None)


def facts(has_run: bool, newest_step: int | None) -> HostFacts:
    return HostFacts("1", "corpus", None, 29500, has_run, newest_step, None, None)


def order(min_hosts: int = 1, run: Path | None = Path("run"), mirrored: bool = False) -> LaunchOrder:
    return LaunchOrder(
        hosts=(VM1, VM2, VM3),
        arguments=["train"],
        corpus=None,
        run=run,
        mirrored=mirrored,
        as_json=False,
        ssh=["ssh"],
        port=None,
        address=None,
        join_seconds=10,
        stop_seconds=30,
        restarts=3,
        min_hosts=min_hosts,
    )


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # A run that nobody has yet, or all on a shared disk: as they were given.
        ((NOTHING, NOTHING, NOTHING), "vm1 vm2 vm3"),
        (((True, 400), (True, 400), (True, 400)), "vm1 vm2 vm3"),
        # The newest checkpoint leads; a run without any comes before a host without the run.
        (((True, 400), NOTHING, (True, 900)), "vm3 vm1 vm2"),
        ((NOTHING, (True, 400), NOTHING), "vm2 vm1 vm3"),
        ((NOTHING, NO_STEP, NOTHING), "vm2 vm1 vm3"),
        ((NO_STEP, (True, 4), NOTHING), "vm2 vm1 vm3"),
    ],
)
def test_the_host_with_the_newest_checkpoint_leads(runs: tuple[tuple[bool, int | None], ...], expected: str) -> None:
    found = Inspection({host: facts(*run) for host, run in zip((VM1, VM2, VM3), runs, strict=True)})
    hosts = leader_first(order(), found)
    assert " ".join(host.name for host in hosts) == expected


def without_vm1(vm2: tuple[bool, int | None]) -> Inspection:
    """The first host is lost; of the others only one may have the run."""
    return Inspection({VM2: facts(*vm2), VM3: facts(*NOTHING)}, {VM1: UnreachableError("vm1: Connection refused")})


@pytest.mark.parametrize(
    ("asked", "found", "words"),
    [
        (order(), without_vm1((True, 400)), None),
        (order(), without_vm1(NOTHING), "vm1: lost with the only copy of run, of which vm2, vm3 has nothing; a "),
        (order(), without_vm1((True, 300)), "vm1: lost with the checkpoint of step 400; of run vm2, vm3 has only step"),
        # A mirror is for that, and a command that trains nothing needs no run.
        (order(mirrored=True), without_vm1(NOTHING), None),
        (order(mirrored=True), without_vm1((True, 300)), None),
        (order(run=None), without_vm1(NOTHING), None),
        (order(min_hosts=3), without_vm1((True, 400)), "2 of 3 hosts can be used (--min-hosts allows to go on with"),
        # Nobody is missing: what nobody has was never made.
        (order(), Inspection({host: facts(*NOTHING) for host in (VM1, VM2, VM3)}), None),
    ],
)
def test_what_is_left_must_suffice(asked: LaunchOrder, found: Inspection, words: str | None) -> None:
    said = why_not_enough(asked, found, LastLeader(VM1, 400))
    assert said is None if words is None else said is not None and said.startswith(words)


def test_whoever_wrote_the_run_has_it() -> None:
    """A start that failed early has left no run, and one that went back has left older checkpoints; vm1 knows."""
    for run in (NOTHING, (True, 300)):
        found = Inspection({VM1: facts(*run)}, {VM2: UnreachableError("vm2: gone"), VM3: UnreachableError("vm3: gone")})
        assert why_not_enough(order(), found, LastLeader(VM1, 400)) is None


def test_an_old_copy_does_not_lead_where_there_is_a_mirror() -> None:
    found = without_vm1((True, 300))
    assert leader_first(order(mirrored=True), found, newest_known=400)[0] is VM3
    assert leader_first(order(mirrored=True), found, newest_known=300)[0] is VM2


def test_every_process_gets_the_secret_and_the_number_of_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TANDEM_TOKEN", raising=False)
    asked = order()
    first, second = (asked.environment([VM1, VM2], host, attempt=2) for host in (VM1, VM2))
    assert first["TANDEM_HOSTS"] == "vm1:1,vm2:1"
    assert first["TANDEM_LAUNCH_ID"] == second["TANDEM_LAUNCH_ID"] == f"{asked.identity}-2"
    assert first["TANDEM_TOKEN"] == second["TANDEM_TOKEN"] != order().environment([VM1], VM1, 1)["TANDEM_TOKEN"]
    # What is left of one host's processes is not looked for on another.
    assert first["TANDEM_LAUNCHED_ON"] != second["TANDEM_LAUNCHED_ON"]
    assert asked.token not in repr(asked)
    monkeypatch.setenv("TANDEM_TOKEN", "chosen by the user")
    assert asked.environment([VM1], VM1, 1)["TANDEM_TOKEN"] == "chosen by the user"


def test_only_what_steers_a_run_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSYNC_RSH", "ssh -p 4444")
    monkeypatch.setenv("RSYNC_PASSWORD", "a secret")
    forwarded = order().environment([VM1], VM1, 1)
    assert forwarded["RSYNC_RSH"] == "ssh -p 4444"
    assert "a secret" not in forwarded.values()
