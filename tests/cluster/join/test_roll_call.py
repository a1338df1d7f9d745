"""The first meeting of real processes: everybody is found, or whoever is not is named, and named once."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.cluster.ranks import rank_environments
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow

# Starts to join when it is told to, so that slow imports do not count; then prints one line.
MEMBER = """
import os, sys
from tandem.cluster import world as world_module
from tandem.config import ClusterConfig
from tandem.process_exit import end_process
from tandem.errors import SaidElsewhereError, TandemError
if "FAKE_VERSION" in os.environ:
    world_module.package_version = lambda: os.environ["FAKE_VERSION"]
print("ready", flush=True)
sys.stdin.readline()
try:
    with world_module.joined_world(ClusterConfig(join_seconds=int(os.environ["JOIN_SECONDS"]))) as world:
        groups = [None if group is None else group.size() for group in (world.host_group, world.leaders_group)]
        place = (world.rank, world.hosts, world.host_names, world.host, world.is_host_leader, world.interface.local)
        print("joined", repr((*place, *groups)), flush=True)
except SaidElsewhereError:
    print("silent", flush=True)
except TandemError as error:
    print("said", error, flush=True)
end_process()
"""
PATIENT, SHORT = "60", "3"


def joined(environments: Sequence[Mapping[str, str]], wait_before_last: bool = False) -> list[str]:
    """Start processes that join with these environments, the last after the one before is gone; what each prints."""
    processes = [
        WarmProcess(
            [sys.executable, "-c", MEMBER],
            env={"JOIN_SECONDS": PATIENT, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for environment in environments
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            if wait_before_last and process is processes[-1]:
                processes[-2].wait(timeout=60)
            process.stdin.write("join\n")
            process.stdin.flush()
        answers = []
        for process in processes:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert "Traceback" not in err
            answers.append(out.strip())
        return answers
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_all_arrive_and_know_their_hosts() -> None:
    # Ranks of a host need not follow each other.
    answers = joined(rank_environments(["b", "a", "b"]))
    assert [ast.literal_eval(answer.removeprefix("joined ")) for answer in answers] == [
        (0, ((0, 2), (1,)), ("b", "a"), 0, True, True, 2, 2),
        (1, ((0, 2), (1,)), ("b", "a"), 1, True, True, None, 2),
        (2, ((0, 2), (1,)), ("b", "a"), 0, False, True, 2, None),
    ]


def test_who_is_missing_is_named_once_with_rank_and_host() -> None:
    first, _, third, _ = rank_environments(["a", "b", "b", "c"])
    names = {"TANDEM_HOSTS": "a,b:2,c"}
    # The process that serves gives up first: those that would wait longer must not tell another story.
    answers = joined([{**first, **names, "JOIN_SECONDS": SHORT}, {**third, **names, "JOIN_SECONDS": "20"}])
    assert answers == [
        "said 2 of 4 processes did not arrive within 3 s: rank 1 on b; rank 3 on c; "
        "see what they say, or raise cluster.join_seconds",
        "silent",
    ]


def test_without_names_of_hosts_those_that_arrived_are_named() -> None:
    first, _, _, last = rank_environments(["a", "b", "b", "c"])
    answers = joined([{**first, "JOIN_SECONDS": SHORT}, {**last, "JOIN_SECONDS": SHORT}])
    # Which of the two gives up first is left to chance.
    assert sorted(answers) == [
        "said 2 of 4 processes did not arrive within 3 s: ranks 1, 2 (arrived were those on a, c); "
        "see what they say, or raise cluster.join_seconds",
        "silent",
    ]


def test_nobody_at_the_meeting_place_is_said_by_whoever_looks_for_it() -> None:
    _, second = rank_environments(["a", "b"])
    (answer,) = joined([{**second, "JOIN_SECONDS": "1"}])
    port = second["MASTER_PORT"]
    assert answer == (
        f"said nobody answered b at 127.0.0.1, port {port}, within 1 s (Connection refused): "
        "the first process has not started, or a firewall is between"
    )


def test_another_version_is_named_once() -> None:
    first, second, third = rank_environments(["a", "b", "c"])
    fake = "tandem 9.9 (deadbeef), torch 1.0"
    said, *others = sorted(joined([first, second, {**third, "FAKE_VERSION": fake}]))
    assert said.startswith("said a has tandem ")
    assert said.endswith(f", but c has {fake}; install the same on all hosts")
    assert others == ["silent", "silent"]


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        first, _ = rank_environments(["a", "b"])
        (answer,) = joined([{**first, "MASTER_PORT": port}])
    assert answer == (
        f"said port {port} on a is in use; end the program that uses it, or choose another port "
        "(--port of tandem launch, otherwise MASTER_PORT)"
    )


def test_a_stranger_at_the_meeting_place_is_not_waited_for_longer() -> None:
    # Takes connections, as whatever uses the port may do, and says nothing.
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        _, second = rank_environments(["a", "b"])
        (answer,) = joined([{**second, "MASTER_PORT": port, "JOIN_SECONDS": SHORT}])
    assert answer.startswith("said ")
    assert f"127.0.0.1, port {port}" in answer


def test_an_interface_that_is_not_there_is_named_once() -> None:
    first, second, third = rank_environments(["a", "b", "b"])
    wrong = {"GLOO_SOCKET_IFNAME": "ib7"}
    said, *others = sorted(joined([first, {**second, **wrong}, {**third, **wrong}]))
    assert said.startswith("said ranks 1, 2 on b: cluster.interface: b has no ib7 with an address; choose one of ")
    assert others == ["silent", "silent"]


def belonging_to(launch: str, environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "TANDEM_LAUNCH_ID": launch}


def test_a_process_of_another_run_is_refused_by_name_and_the_run_goes_on() -> None:
    first, second = rank_environments(["a", "b"])
    stranger = {**second, "TANDEM_HOST": "c"}
    runs = [belonging_to("1", first), belonging_to("2", stranger), belonging_to("1", second)]
    # The run must not be over before the stranger has come.
    answers = joined(runs, wait_before_last=True)
    assert [answer.split()[0] for answer in answers] == ["joined", "said", "joined"]
    assert answers[1] == (
        f"said rank 1 on c belongs to another run (tandem launch 2) than the one that meets at 127.0.0.1, port "
        f"{first['MASTER_PORT']} (tandem launch 1); end that one, or give this one another port (--port of tandem "
        "launch, otherwise MASTER_PORT)"
    )
