"""Who a process is, and how processes agree."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tandem.cluster.launchers import VARIABLES
from tandem.cluster.world import World, joined_world
from tandem.errors import TandemError

AGREEMENT = """
from tandem.cluster.world import joined_world
with joined_world() as world:
    # One line in one write, because both processes share the output.
    answers = (world.rank, world.leads, world.total(1.5, world.rank), world.agree(world.rank == 1), world.agree(False))
    print(repr(answers) + "\\n", end="", flush=True)
"""


def test_without_a_launcher_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with joined_world() as world:
        assert (world.rank, world.size, world.leads) == (0, 1, True)
        assert world.total(1.5, 2) == [1.5, 2]
        assert world.agree(True)
        assert not world.agree(False)
        assert world.sum_(torch.tensor([3])).tolist() == [3]


def test_half_a_launcher_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    message = "RANK set but LOCAL_RANK, WORLD_SIZE not: start the processes with torchrun"
    with pytest.raises(TandemError, match=message), joined_world():
        pass


def test_only_the_first_process_leads() -> None:
    assert [World(rank, 3, torch.device("cpu")).leads for rank in range(3)] == [True, False, False]


def test_two_processes_get_the_same_answers() -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    ended = subprocess.run(
        [sys.executable, *command, sys.executable, "-c", AGREEMENT], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [
        "(0, True, [3.0, 1.0], True, False)",
        "(1, False, [3.0, 1.0], True, False)",
    ]
