"""TensorBoard's CSV downloads: a file a curve, a folder a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.reporting.formats.find_run import read_run


def curve(path: Path, first: float, last: float, *, every: int = 100, points: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ["Wall time,Step,Value"]
    for number in range(1, points + 1):
        value = first + (last - first) * (number - 1) / max(points - 1, 1)
        rows.append(f"{1.6e9 + 0.5 * every * number},{every * number},{value}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_folder_is_one_run(tmp_path: Path) -> None:
    curve(tmp_path / "run-demo_train-tag-loss.csv", 5.0, 2.0)
    curve(tmp_path / "run-demo_valid-tag-loss.csv", 5.5, 2.5, every=500, points=2)
    curve(tmp_path / "run-demo_valid-tag-eval_bleu (1).csv", 10.0, 20.0, every=500, points=2)
    curve(tmp_path / "run-demo_train-tag-learning_rate.csv", 1e-3, 1e-4)
    record = read_run(tmp_path)
    assert record.source == "TensorBoard CSV"
    assert [record.train_loss.values[place] for place in (0, -1)] == [5.0, 2.0]
    assert list(record.eval_loss.at) == [500, 1000]
    assert list(record.bleu.values) == [10, 20]
    assert len(record.learning_rate) == 10
    assert set(record.step_seconds.values) == {0.5}
    assert record.sessions[0].started == 1.6e9 + 50


def test_names_without_a_run(tmp_path: Path) -> None:
    curve(tmp_path / "train_loss.csv", 5.0, 2.0)
    curve(tmp_path / "val_loss.csv", 5.0, 2.5, every=500, points=2)
    record = read_run(tmp_path)
    assert (len(record.train_loss), len(record.eval_loss)) == (10, 2)


def test_one_file_is_one_curve_and_says_so(tmp_path: Path) -> None:
    record = read_run(curve(tmp_path / "run-demo-tag-train_loss.csv", 5.0, 2.0))
    assert len(record.train_loss) == 10
    assert any("give the folder" in problem for problem in record.problems)


def test_two_runs_in_a_folder_are_not_mixed(tmp_path: Path) -> None:
    curve(tmp_path / "run-a-tag-train_loss.csv", 5.0, 2.0)
    curve(tmp_path / "run-a-tag-eval_loss.csv", 5.0, 2.0)
    curve(tmp_path / "run-b-tag-train_loss.csv", 9.0, 8.0, points=5)
    record = read_run(tmp_path)
    assert record.train_loss.values[0] == 5.0
    assert len(record.train_loss) == 10
    assert any("run-b-tag-train_loss.csv" in problem for problem in record.problems)


def test_a_curve_of_nothing_known(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="none of the scalars is known"):
        read_run(curve(tmp_path / "run-a-tag-gradient_norm.csv", 1.0, 2.0))
