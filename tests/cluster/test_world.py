"""World: rank and host of a process, small collectives, and failing together."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest
import torch

from tandem.cluster.join.launchers import LAUNCHERS
from tandem.cluster.world import World, joined_world
from tandem.errors import TandemError
from tests.cluster.ranks import rank_environments
from tests.warm import WarmProcess

CPU = torch.device("cpu")

AGREEMENT = """
import torch
from tandem.cluster.world import joined_world
from tandem.process_exit import end_process
from tandem.errors import SaidElsewhereError, TandemError

def outcome(action):
    try:
        return action()
    except SaidElsewhereError as error:
        return "silent: " + str(error)
    except TandemError as error:
        return "said: " + str(error)
    except Exception as error:
        return "raised: " + repr(error)

def fail(error, *ranks):
    def action():
        if world.rank in ranks:
            raise error
    return outcome(lambda: world.together(action))

with joined_world() as world:
    mine = torch.tensor([world.rank, 7])
    world.broadcast_in_host(mine)
    answers = {
        "who": (world.rank, world.is_leader, world.host, world.is_host_leader, world.host_names, world.hosts),
        "total": world.total(1.5, world.rank),
        "largest": world.largest(10 - world.rank),
        "told": world.broadcast({"from": world.rank}),
        "gathered": world.gather("ä" * world.rank),
        "nothing": world.gather(None),
        "inside": mine.tolist(),
        "together": world.together(lambda: 5),
        "no room": fail(TandemError("no room"), 1),
        "no file": fail(FileNotFoundError(2, "No such file", "data"), 1, 2),
        "all": fail(TandemError("no room"), 0, 1, 2),
        "defect": fail(KeyError("x"), 2),
        "same": outcome(lambda: world.check_same("the corpus", "one")),
        "different": outcome(lambda: world.check_same("the corpus", world.host_names[world.host])),
    }
    # One line in one write, because processes may share the output.
    print(repr(answers) + "\\n", end="", flush=True)
end_process()
"""


def test_without_a_launcher_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for launcher in LAUNCHERS:
        for name in launcher.variables:
            monkeypatch.delenv(name, raising=False)
    with joined_world() as world:
        assert (world.rank, world.size, world.is_leader, world.host, world.is_host_leader) == (0, 1, True, 0, True)
        assert world.total(1.5, 2) == [1.5, 2]
        assert world.largest(3) == 3
        assert world.gather([1, "a"]) == [[1, "a"]]
        assert world.broadcast("word") == "word"
        assert world.together(lambda: 5) == 5
        world.check_same("the corpus", "any")


def test_half_a_launcher_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    message = "RANK set but LOCAL_RANK, WORLD_SIZE not: start the processes with torchrun"
    with pytest.raises(TandemError, match=message), joined_world():
        pass


@pytest.mark.parametrize(
    ("rank", "leads", "host", "leads_host"),
    [(0, True, 0, True), (1, False, 1, True), (2, False, 0, False), (3, False, 1, False)],
)
def test_one_process_leads_the_run_and_one_each_host(rank: int, leads: bool, host: int, leads_host: bool) -> None:
    world = World(rank, 4, CPU, hosts=((0, 2), (1, 3)), host_names=("a", "b"))
    assert (world.is_leader, world.host, world.is_host_leader) == (leads, host, leads_host)


@pytest.mark.slow
def test_processes_get_the_same_answers() -> None:
    """Three of them on two hosts, started by torchrun's variables alone."""
    processes = [
        WarmProcess(
            [sys.executable, "-c", AGREEMENT],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for environment in rank_environments(["a", "b", "b"])
    ]
    try:
        said = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0, 0], said
    answers = [ast.literal_eval(out) for out, _ in said]
    hosts = (("a", "b"), ((0,), (1, 2)))
    assert [answer.pop("who") for answer in answers] == [
        (0, True, 0, True, *hosts),
        (1, False, 1, True, *hosts),
        (2, False, 1, False, *hosts),
    ]
    assert [answer.pop("inside") for answer in answers] == [[0, 7], [1, 7], [1, 7]]
    for case, text in (
        ("no room", "rank 1 on b: no room"),
        ("no file", "ranks 1, 2 on b: data: No such file"),
        ("all", "no room"),
    ):
        assert [answer.pop(case) for answer in answers] == [f"said: {text}", *[f"silent: {text}"] * 2]
    text = "rank 2 on b: KeyError: 'x'"
    # The process with the fault keeps its traceback.
    assert [answer.pop("defect") for answer in answers] == [f"said: {text}", f"silent: {text}", "raised: KeyError('x')"]
    different = "the corpus on b is not the one on a; put the same on all hosts"
    assert [answer.pop("different") for answer in answers] == [
        f"said: {different}",
        f"silent: {different}",
        f"silent: {different}",
    ]
    assert answers[0] == {
        "total": [4.5, 3.0],
        "largest": 10.0,
        "told": {"from": 0},
        "gathered": ["", "ä", "ää"],
        "nothing": [None, None, None],
        "together": 5,
        "same": None,
    }
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.slow
def test_torchrun_brings_processes_together() -> None:
    script = (
        "from tandem.cluster.world import joined_world\n"
        "from tandem.process_exit import end_process\n"
        "with joined_world() as world: print(f'{world.total(world.rank, 1)}\\n', end='')\n"
        "end_process()"
    )
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    ended = subprocess.run(
        [sys.executable, *command, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "TANDEM_HOST": "a"},
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[1.0, 2.0]\n[1.0, 2.0]\n"
