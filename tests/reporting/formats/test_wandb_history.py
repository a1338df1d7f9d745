"""W&B histories: rows of the API as CSV and JSON lines, and the CSV of a chart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.reporting.formats.find_run import read_run
from tandem.reporting.run_record import RunRecord


def read(directory: Path, text: str, name: str) -> RunRecord:
    path = directory / name
    path.write_text(text)
    return read_run(path)


def rows() -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    for step in range(10, 101, 10):
        clock = {"_step": step, "_runtime": 2.0 * step, "_timestamp": 1.7e9 + 2.0 * step}
        found.append({**clock, "train/loss": 4 - step / 50, "train/learning_rate": 1e-3})
        if step % 50 == 0:
            found.append({**clock, "eval/loss": 3 - step / 100, "eval/bleu": step / 5})
    return found


def as_csv() -> str:
    names = ["_step", "eval/bleu", "_runtime", "_timestamp", "train/loss", "eval/loss", "train/learning_rate"]
    lines = [",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in rows())]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["history.csv", "history.jsonl"])
def test_the_rows_of_a_history(tmp_path: Path, name: str) -> None:
    text = as_csv() if name.endswith("csv") else "".join(json.dumps(row) + "\n" for row in rows())
    record = read(tmp_path, text, name)
    assert (record.source, record.axis) == ("W&B history", "step")
    assert list(record.train_loss.at) == list(range(10, 101, 10))
    assert list(record.eval_loss.values) == pytest.approx([2.5, 2.0])
    assert list(record.bleu.values) == [10, 20]
    assert set(record.learning_rate.values) == {1e-3}
    assert set(record.step_seconds.values) == {2.0}
    assert record.sessions[0].ended == 1.7e9 + 200
    # The same is found in a directory.
    assert read_run(tmp_path).points == record.points


def test_not_a_number_is_kept_as_evidence_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows()) + '{"_step": 110, "train/loss": "NaN"}\n{"_step": 12'
    record = read(tmp_path, text, "history.jsonl")
    assert record.last_step == 110
    assert record.train_loss.values[-1] != record.train_loss.values[-1]


def test_the_csv_of_a_chart(tmp_path: Path) -> None:
    head = '"Step","calm-sky-1 - eval/loss","calm-sky-1 - eval/loss__MIN","calm-sky-1 - eval/loss__MAX"\n'
    lines = "".join(f'"{step}","{3 - step / 100}","1","9"\n' for step in range(10, 101, 10))
    record = read(tmp_path, head + lines, "chart.csv")
    assert record.source == "W&B history"
    assert list(record.eval_loss.values) == pytest.approx([3 - step / 100 for step in range(10, 101, 10)])


def test_the_runs_of_a_chart_are_not_mixed(tmp_path: Path) -> None:
    head = '"Step","a - eval/loss","b - eval/loss"\n'
    lines = "".join(f'"{step}","{3 - step / 100}","{9.0 if step < 50 else ""}"\n' for step in range(10, 101, 10))
    record = read(tmp_path, head + lines, "chart.csv")
    assert len(record.eval_loss) == 10
    assert record.eval_loss.values.max() < 3
    assert any("a was read, not b" in problem for problem in record.problems)
