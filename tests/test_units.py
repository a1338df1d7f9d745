"""Evidence is written for people: the unit comes from the name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tandem.units import row


@pytest.mark.parametrize(
    ("name", "value", "label", "lines"),
    [
        ("wall_seconds", 69_120.0, "Wall", ["19 h 12 min"]),
        ("evaluation_seconds", 200, "Evaluation", ["3 min 20 s"]),
        ("median_seconds", 1.2944, "Median", ["1.29 s"]),
        ("almost_a_minute_seconds", 59.9999, "Almost a minute", ["1 min 0 s"]),
        ("almost_an_hour_seconds", 3599.9, "Almost an hour", ["1 h 0 min"]),
        ("seconds", 3.0, "Seconds", ["3 s"]),
        ("weights_bytes", 244_102_332, "Weights", ["244.1 MB"]),
        ("kept_bytes", 4.1e9, "Kept", ["4.10 GB"]),
        ("state_bytes", 812, "State", ["812 B"]),
        ("ring_bytes_per_step", 244e6, "Ring", ["244.0 MB a step"]),
        ("rate_mbit_per_second", 931.04, "Rate", ["931 Mbit/s"]),
        ("compute_share", 0.381, "Compute share", ["38.1 %"]),
        ("cost_dollars", 1115.2, "Cost", ["$1,115.20"]),
        ("last_step", 50_000, "Last step", ["50,000"]),
        ("bleu", 26.4, "BLEU", ["26.4"]),
        ("gpu_power_share", 0.5, "GPU power share", ["50.0 %"]),
        ("peak", 0.0007, "Peak", ["7e-4"]),
        ("slope", -0.0134, "Slope", ["-0.0134"]),
        ("bleu_interval", [26.71234, 28.1], "BLEU interval", ["26.71 to 28.1"]),
        ("step_seconds_interval", [1.2, 1.4], "Step interval", ["1.2 s to 1.4 s"]),
        ("loss", math.nan, "Loss", ["not a number"]),
        ("loss", -math.inf, "Loss", ["minus infinite"]),
        ("correlation", None, "Correlation", ["not known"]),
        ("resumed", True, "Resumed", ["yes"]),
        ("hosts", ["a", "b"], "Hosts", ["a, b"]),
        ("notes", [], "Notes", ["none"]),
        ("parts_seconds", {"compute": 0.5, "data": 70}, "Parts", ["compute: 0.5 s", "data: 1 min 10 s"]),
        ("sizes", {"model_a.pt": 5, "total_bytes": 2e6}, "Sizes", ["model_a.pt: 5", "total: 2.0 MB"]),
        ("texts", {"en": {"raw_lines": 1000, "raw_bytes": 2e6}}, "Texts", ["en: raw lines 1,000, raw 2.0 MB"]),
        ("files", [{"name": "model.pt", "bytes": 2e6, "what": "weights"}], "Files", ["model.pt, 2.0 MB, weights"]),
    ],
)  # fmt: skip
def test_a_row_of_evidence(name: str, value: Any, label: str, lines: list[str]) -> None:
    assert row(name, value) == (label, lines)
