"""Sockeye's metrics file: a line a checkpoint, `name=value` by tabs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tandem.reporting.formats.find_run import read_run
from tandem.reporting.run_record import RunRecord


def line(checkpoint: int, *, updates: bool = True, **more: object) -> str:
    values: dict[str, object] = {
        "bleu-val": 0.05 * checkpoint,
        "converged": False,
        "diverged": False,
        "epoch": checkpoint // 3,
        "gradient-norm": None,
        "learning-rate": 0.0002,
        "perplexity-train": 30.0 / checkpoint,
        "perplexity-val": 24.0 / checkpoint,
        "time-elapsed": 600.0 * checkpoint,
        "used-gpu-memory": 8598,
    }
    if updates:
        values["updates"] = 1000 * checkpoint
    values |= more
    return "\t".join([str(checkpoint), *(f"{name}={value}" for name, value in sorted(values.items()))])


def read(directory: Path, *lines: str) -> RunRecord:
    (directory / "metrics").write_text("\n".join(lines) + "\n")
    return read_run(directory)


def test_the_numbers(tmp_path: Path) -> None:
    record = read(tmp_path, *(line(checkpoint) for checkpoint in range(1, 7)))
    assert (record.source, record.state, record.axis) == ("Sockeye metrics", "unknown", "step")
    assert list(record.eval_loss.at) == [1000, 2000, 3000, 4000, 5000, 6000]
    assert list(record.eval_loss.values) == pytest.approx([math.log(24 / n) for n in range(1, 7)])
    assert record.train_loss.values[0] == pytest.approx(math.log(30))
    assert list(record.bleu.values) == pytest.approx([5, 10, 15, 20, 25, 30])
    assert set(record.learning_rate.values) == {0.0002}
    assert record.sessions[0].ended == 3600


def test_ends(tmp_path: Path) -> None:
    assert read(tmp_path, line(1), line(2, converged=True)).state == "finished"
    broken = read(tmp_path, line(1), line(2, diverged=True))
    assert broken.not_finite
    assert "diverged" in str(broken.failure)


def test_without_updates_checkpoints_are_counted_and_that_is_said(tmp_path: Path) -> None:
    record = read(tmp_path, *(line(checkpoint, updates=False) for checkpoint in range(1, 4)))
    assert list(record.bleu.at) == [1, 2, 3]
    assert any("checkpoints are counted" in problem for problem in record.problems)
