"""The cost of sums: lines through measured points, and sums by real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tandem.cluster.probe import FIRST_VALUES, Curve
from tests.cluster.ranks import rank_environments

VALUES = 300_000


@pytest.mark.parametrize(
    ("points", "values", "expected"),
    [
        # One point says nothing of what a longer vector adds: in proportion, and never less than was seen.
        ([(100, 1.0)], 300, 3.0),
        ([(100, 1.0)], 50, 1.0),
        ([(100, 1.0), (200, 1.5)], 200, 1.5),
        ([(100, 1.0), (200, 1.5)], 150, 1.25),
        ([(100, 1.0), (200, 1.5)], 400, 2.5),
        # A rate limiter lets the first of it pass at once: only the last two points know the rate.
        ([(100, 0.1), (200, 0.2), (400, 2.2)], 800, 6.2),
        ([(100, 0.1), (200, 0.2), (400, 2.2)], 150, 0.15),
        # Noise.
        ([(100, 1.0), (200, 0.9)], 400, 1.0),
    ],
)
def test_between_and_beyond_what_was_measured(points: list[tuple[int, float]], values: int, expected: float) -> None:
    assert Curve(tuple(points)).seconds(values) == pytest.approx(expected)


MEASURE = f"""
import json
import torch
from tandem.cluster.probe import measure_low_rank, measure_sums
from tandem.cluster.world import joined_world
from tandem.ending import end_process

with joined_world() as world:
    sums = measure_sums(world, {VALUES}, budget=0.2)
    low_rank = measure_low_rank(world, [torch.Size([100, 100]), torch.Size([7])], rank=2)
    points = {{kind: curve.points for kind, curve in sums.curves.items()}}
    link = [sums.link.bytes_per_second, sums.link.latency]
    print(json.dumps([points, link, sums.coding, low_rank, sums.seconds({VALUES})]))
end_process()
"""


@pytest.mark.slow
def test_all_processes_of_two_hosts_hear_the_same() -> None:
    """Two processes on one host, one on the other: who does not speak for its host takes part all the same."""
    processes = [
        subprocess.Popen([sys.executable, "-c", MEASURE], env=environment, stdout=subprocess.PIPE, text=True)
        for environment in rank_environments(["a", "a", "b"])
    ]
    said = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert said[0] == said[1] == said[2]
    points, (rate, latency), coding, low_rank, seconds = said[0]
    assert list(points) == list(seconds) == ["allreduce", "bf16", "int4"]
    for measured in points.values():
        lengths = [length for length, _ in measured]
        assert lengths[0] == FIRST_VALUES
        assert lengths == sorted(set(lengths))
        assert lengths[-1] <= VALUES
    assert set(coding) == {"bf16", "int4"}
    assert min(rate, latency, low_rank, *coding.values(), *seconds.values()) > 0
