"""Real logs and curves, read with the right number of points and the right values."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tandem.reporting.formats.find_run import read_run
from tests.places import RUNS

LABELS = RUNS / "curves" / "LABELS.csv"
ROWS = list(csv.DictReader(LABELS.read_text().splitlines())) if LABELS.exists() else []

pytestmark = pytest.mark.skipif(not ROWS, reason="the real runs in ../shared/runs are not here")


@pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])
def test_labelled_curves(row: dict[str, str]) -> None:
    record = read_run(RUNS / "curves" / row["file"])
    curve = record.eval_loss
    values = np.exp(curve.values) if "ppl" in row["x"] else curve.values
    assert record.axis == row["x"].split()[0]
    assert len(curve) == int(row["points"])
    assert curve.at[-1] == float(row["last_x"])
    assert values[0] == pytest.approx(float(row["first"]), abs=1e-4)
    assert values.min() == pytest.approx(float(row["best"]), abs=1e-4)
    assert curve.at[int(values.argmin())] == float(row["best_at"])
    assert values[-1] == pytest.approx(float(row["last"]), abs=1e-4)
    if row["bleu_max"]:
        assert record.bleu.values.max() == pytest.approx(float(row["bleu_max"]), abs=1e-3)
        assert record.bleu.values[-1] == pytest.approx(float(row["bleu_last"]), abs=1e-3)
    else:
        assert len(record.bleu) == 0
    assert record.problems == ()


@pytest.mark.parametrize(
    ("name", "last", "seconds", "evaluations", "bleu", "limit"),
    [
        ("improving-1.7s.log", 18_900, 1.685, 4, 33.68, 300_000),
        ("improving-0.8s.log", 20_800, 0.782, 5, 34.36, 300_000),
        ("starved-35s.log", 7_500, 34.9, 1, 22.8, 50_000),
    ],
)
def test_openseq2seq_runs(name: str, last: int, seconds: float, evaluations: int, bleu: float, limit: int) -> None:
    record = read_run(RUNS / "openseq2seq" / name)
    assert record.state == "unknown"
    assert record.train_loss.at[0] == 0
    assert record.train_loss.at[-1] == last
    assert len(record.train_loss) == last // 100 + 1
    assert np.median(record.step_seconds.values) == pytest.approx(seconds, rel=2e-3)
    assert len(record.eval_loss) == len(record.bleu) == evaluations
    assert record.bleu.at[0] == 4000
    assert record.bleu.values[-1] == pytest.approx(bleu)
    assert record.max_steps == limit
    team = record.team
    assert (team.ranks, team.hosts, team.parameters, team.precision) == (4, 2, 60_880_896, "mixed")
    assert team.gradient_bytes_per_value == 4
    assert team.device == "Tesla V100-PCIE-16GB"
    assert record.schedule is not None
    assert record.schedule.rate is not None
    assert record.schedule.rate(8000) == pytest.approx(9.88e-4, rel=1e-3)
    assert [text.language for text in record.texts] == ["en", "de"]


def test_openseq2seq_out_of_memory() -> None:
    record = read_run(RUNS / "openseq2seq" / "crash-out-of-memory.log")
    assert record.state == "crashed"
    assert "device memory" in (record.failure or "")
    assert (record.team.ranks, record.team.precision) == (2, "float32")


def test_a_launch_that_failed() -> None:
    record = read_run(RUNS / "openseq2seq" / "failed-launch.log")
    assert record.state == "crashed"
    assert "internal_ip1 and internal_ip2 could not be resolved" in (record.failure or "")
    assert "run.py was not found" in (record.failure or "")


def test_hosts_are_unknown_where_only_one_of_them_speaks(tmp_path: Path) -> None:
    log = (RUNS / "openseq2seq" / "improving-0.8s.log").read_text(errors="replace")
    path = tmp_path / "nohup.out"
    path.write_text("".join(line for line in log.splitlines(keepends=True) if "NCCL INFO" not in line))
    team = read_run(path).team
    assert (team.ranks, team.hosts) == (4, None)
