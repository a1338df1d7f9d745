"""Rule 2, by force: trainings killed where it hurts, one process or all, end with the same bits as one left alone."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from testbed.faults.places import FUNCTIONS

HUNG_SECONDS = 3000


def kill(*arguments: str) -> str:
    """Run the trials in a process of their own, which forks those that are killed; what it prints."""
    command = [sys.executable, "-m", "bench.faults", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HUNG_SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", FUNCTIONS.values())
def test_the_places_are_still_there(name: str) -> None:
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    assert callable(found)


# Each after the other on one run. With int4 every host has state of its own that must belong to the checkpoint's step.
@pytest.mark.slow
def test_killed_in_every_place_a_run_ends_with_the_same_bits() -> None:
    places = ("step", "checkpoint write", "joining", "evaluation", "rename to prune", "start-up")
    said = kill("--strategy", "int4", "--trial", "1", "--aims", *places)
    assert "1 bit-identical endings" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "instant"),
    [
        # While the weights of an evaluation are to be written among the best, and the other process goes on.
        ("allreduce", "rank 0 at operation 0 of checkpoint write 3"),
        # While a host is to save its part of the first checkpoint, of which the other one has saved all of its own.
        ("powersgd", "rank 1 at operation 0 of checkpoint write 1"),
    ],
)
def test_what_only_one_process_has_written_does_not_count(strategy: str, instant: str) -> None:
    assert "1 bit-identical endings" in kill("--strategy", strategy, "--trial", "0", "--aims", instant)


@pytest.mark.long
def test_thirty_kills_over_all_strategies() -> None:
    assert "30 kills" in kill("--kills", "30", "--seed", "2")
