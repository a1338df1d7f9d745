"""TensorBoard event files: tags of several frameworks, sides in directories, moments, damage."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tandem.errors import TandemError
from tandem.reporting.formats.find_run import read_run
from tests.reporting.formats.events import Value, write_events

START = 1_600_000_000.0


def run(loss: str, eval_loss: str, bleu: str, rate: str) -> list[Value]:
    """Ten steps of 2 s each to a value, an evaluation of 30 s at every fiftieth."""
    values: list[Value] = []
    moment = START
    for step in range(10, 101, 10):
        moment += 20
        values += [(loss, step, 9 - step / 50, moment), (rate, step, step / 1e5, moment)]
        if step % 50 == 0:
            moment += 30
            values += [(eval_loss, step, 8 - step / 50, moment), (bleu, step, step / 5, moment)]
    return values


@pytest.mark.parametrize(
    "tags",
    [
        ("train_loss", "eval_loss", "eval_BLEU", "learning_rate"),
        ("train/loss", "eval/loss", "eval/bleu", "train/learning_rate"),
        ("Loss/train", "Loss/valid", "BLEU", "LR"),
        ("train_loss_step", "val_loss", "val_sacreBLEU", "lr-Adam"),
    ],
)
@pytest.mark.parametrize("as_tensors", [False, True])
def test_tags_of_several_frameworks(tmp_path: Path, tags: tuple[str, str, str, str], as_tensors: bool) -> None:
    write_events(tmp_path, run(*tags), as_tensors=as_tensors)
    record = read_run(tmp_path)
    assert record.source == "TensorBoard events"
    assert list(record.train_loss.at) == list(range(10, 101, 10))
    assert list(record.eval_loss.values) == pytest.approx([7.0, 6.0])
    assert list(record.bleu.values) == pytest.approx([10.0, 20.0])
    assert record.learning_rate.values[-1] == pytest.approx(1e-3)


def test_step_times_from_the_moments_leave_out_evaluations(tmp_path: Path) -> None:
    write_events(tmp_path, run("loss", "eval_loss", "bleu", "lr"))
    record = read_run(tmp_path)
    assert list(record.step_seconds.at) == [20, 30, 40, 50, 70, 80, 90, 100]
    assert set(record.step_seconds.values) == {2.0}
    assert any("moments" in problem for problem in record.problems)


def test_step_times_that_are_written_are_taken(tmp_path: Path) -> None:
    write_events(tmp_path, [*run("loss", "eval_loss", "bleu", "lr"), ("step_time", 100, 1.75, START)])
    record = read_run(tmp_path)
    assert list(record.step_seconds.values) == [1.75]
    assert record.problems == ()


def test_two_sides_in_directories_are_one_run(tmp_path: Path) -> None:
    write_events(tmp_path / "train_inner", [("loss", step, 5.0, START + step) for step in range(10)])
    write_events(tmp_path / "valid", [("loss", 9, 4.0, START), ("ppl", 9, 54.6, START), ("bleu", 9, 12.0, START)])
    record = read_run(tmp_path)
    assert len(record.train_loss) == 10
    assert list(record.eval_loss.values) == [4.0]
    assert list(record.bleu.values) == [12.0]
    assert not any("Left out" in problem for problem in record.problems)


def test_of_several_runs_the_one_that_tells_most(tmp_path: Path) -> None:
    write_events(tmp_path / "version_0", [("val_loss", step, 5.0, START) for step in range(5)])
    write_events(tmp_path / "version_1", [("val_loss", step, 4.0, START) for step in range(50)])
    record = read_run(tmp_path)
    assert record.path == str(tmp_path / "version_1")
    (problem,) = [problem for problem in record.problems if "Left out" in problem]
    assert f"tandem report {tmp_path / 'version_0'}" in problem


def test_a_single_file_by_any_name(tmp_path: Path) -> None:
    written = write_events(tmp_path / "made", [("valid_ppl", 1, math.e, START), ("valid_ppl", 2, math.nan, START)])
    path = written.rename(tmp_path / "copy")
    values = read_run(path).eval_loss.values
    assert values[0] == pytest.approx(1.0)
    assert np.isnan(values[1])


def test_sessions_are_split_by_long_silences(tmp_path: Path) -> None:
    values = [("loss", step, 5.0, START + 10.0 * step) for step in range(1, 6)]
    values += [("loss", step, 5.0, START + 5000 + 10.0 * step) for step in range(4, 9)]
    write_events(tmp_path, values)
    record = read_run(tmp_path)
    assert [(session.first_step, session.last_step) for session in record.sessions] == [(1, 5), (4, 8)]
    assert [(session.started, session.ended) for session in record.sessions] == [
        (START + 10, START + 50),
        (START + 5040, START + 5080),
    ]
    assert record.repeated_steps == 1
    assert set(record.step_seconds.values) == {10.0}


def test_epochs_are_not_steps(tmp_path: Path) -> None:
    write_events(tmp_path / "train", [("epoch_loss", epoch, 5.0, START + 600 * epoch) for epoch in range(5)])
    write_events(tmp_path / "validation", [("epoch_loss", epoch, 4.0, START + 600 * epoch) for epoch in range(5)])
    record = read_run(tmp_path)
    assert record.axis == "epoch"
    assert (len(record.train_loss), len(record.eval_loss), len(record.step_seconds)) == (5, 5, 0)


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_file_that_was_cut_off(tmp_path: Path, kept: float) -> None:
    path = write_events(tmp_path, [("loss", step, 5.0, START + step) for step in range(100)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert 100 * kept - 5 < len(read_run(tmp_path).train_loss) < 100


def test_a_file_damaged_in_the_middle(tmp_path: Path) -> None:
    path = write_events(tmp_path, [("loss", step, 5.0, START + step) for step in range(100)])
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 : len(whole) // 2 + 40] = bytes(range(40))
    path.write_bytes(whole)
    assert 40 < len(read_run(tmp_path).train_loss) < 100


def test_nothing_that_is_known(tmp_path: Path) -> None:
    write_events(tmp_path, [("reward", 1, 5.0, START)])
    with pytest.raises(TandemError, match="found: reward"):
        read_run(tmp_path)
