"""The cost of sums: lines through measured points, and sums by real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tandem.cluster.exchange.link_probe import FIRST_VALUES, SumTimes
from tests.cluster.ranks import rank_environments
from tests.warm import WarmProcess

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
    assert SumTimes(tuple(points)).seconds(values) == pytest.approx(expected)


MEASURE = f"""
import json
from tandem.cluster.exchange.link_probe import measure_sums
from tandem.cluster.exchange.strategy import known_strategies
from tandem.cluster.world import joined_world
from tandem.config import ExchangeConfig
from tandem.process_exit import end_process

with joined_world() as world:
    shapes = [({VALUES} // 500, 499), ({VALUES} // 500,)]
    sums = measure_sums(world, shapes, ExchangeConfig(), known_strategies(), budget=0.2)
    points = {{kind: times.points for kind, times in sums.times.items()}}
    link = [sums.link.bytes_per_second, sums.link.latency]
    print(json.dumps([points, link, sums.coding, sums.seconds({VALUES})]))
end_process()
"""


@pytest.mark.slow
def test_all_processes_of_two_hosts_hear_the_same() -> None:
    """Two processes on one host, one on the other: who does not speak for its host takes part all the same."""
    processes = [
        WarmProcess([sys.executable, "-c", MEASURE], env=environment, stdout=subprocess.PIPE)
        for environment in rank_environments(["a", "a", "b"])
    ]
    said = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert said[0] == said[1] == said[2]
    points, (rate, latency), coding, seconds = said[0]
    assert list(points) == list(seconds) == ["allreduce", "bf16", "int4", "powersgd"]
    # PowerSGD's factors do not grow with the length: only the whole gradient is timed.
    assert [length for length, _ in points.pop("powersgd")] == [VALUES]
    for measured in points.values():
        lengths = [length for length, _ in measured]
        assert lengths[0] == FIRST_VALUES
        assert lengths == sorted(set(lengths))
        assert lengths[-1] <= VALUES
    assert set(coding) == {"bf16", "int4"}
    assert min(rate, latency, *coding.values(), *seconds.values()) > 0
