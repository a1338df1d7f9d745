"""The bound on what compute can explain of a step."""

from __future__ import annotations

import pytest

from tandem.reporting.judge.network_share import most_compute_seconds
from tandem.reporting.run_record import Team


@pytest.mark.parametrize(
    ("device", "precision", "tflops"),
    [
        ("Tesla V100-PCIE-16GB", "mixed", 0.1 * 112),
        ("Tesla V100-SXM2-16GB", "mixed", 0.1 * 125),
        ("Tesla V100-SXM2-16GB", "float32", 0.3 * 15.7),
        ("NVIDIA A100-SXM4-40GB", "bfloat16", 0.1 * 312),
        ("Tesla T4", None, 0.1 * 65),
    ],
)
def test_the_least_speed_of_a_known_device(device: str, precision: str | None, tflops: float) -> None:
    team = Team(device=device, precision=precision, parameters=60_000_000, most_positions_per_rank=8_000)
    assert most_compute_seconds(team) == pytest.approx(6 * 60e6 * 8e3 / (tflops * 1e12))


@pytest.mark.parametrize(
    ("device", "parameters", "positions"),
    [(None, 1, 1.0), ("cpu", 1, 1.0), ("cuda", 1, 1.0), ("Tesla T4", None, 1.0), ("Tesla T4", 1, None)],
)
def test_nothing_follows_from_what_is_not_known(
    device: str | None, parameters: int | None, positions: float | None
) -> None:
    team = Team(device=device, precision="float32", parameters=parameters, most_positions_per_rank=positions)
    assert most_compute_seconds(team) is None
