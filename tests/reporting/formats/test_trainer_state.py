"""HuggingFace's trainer_state.json: its history, its checkpoints, and what is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tandem.errors import TandemError
from tandem.reporting.formats.find_run import read_run


def state(last: int, **more: Any) -> dict[str, Any]:
    history: list[dict[str, Any]] = []
    for step in range(10, last + 1, 10):
        rates = {"grad_norm": 1.5, "learning_rate": 5e-5 * (1 - step / 100)}
        history.append({"epoch": step / 20, "loss": 3 - step / 100, **rates, "step": step})
        if step % 20 == 0:
            scores = {"eval_bleu": step / 4, "eval_gen_len": 20.5, "eval_loss": 2.5 - step / 100}
            speed = {"eval_runtime": 2.0, "eval_samples_per_second": 50.0, "eval_steps_per_second": 6.25}
            history.append({"epoch": step / 20, **scores, **speed, "step": step})
    return {"global_step": last, "log_history": history, "max_steps": 100, "num_train_epochs": 5, **more}


def write(path: Path, contents: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(contents, indent=2))
    return path


def test_the_numbers(tmp_path: Path) -> None:
    whole = state(100)
    summary = {"train_loss": 2.4, "train_runtime": 250.0, "train_steps_per_second": 0.4, "total_flos": 1e15}
    whole["log_history"].append({"epoch": 5.0, **summary, "step": 100})
    record = read_run(write(tmp_path / "trainer_state.json", whole))
    assert (record.source, record.state, record.max_steps) == ("HuggingFace trainer state", "finished", 100)
    assert list(record.train_loss.at) == list(range(10, 101, 10))
    assert record.train_loss.values[-1] == pytest.approx(2.0)
    assert list(record.eval_loss.values) == pytest.approx([2.3, 2.1, 1.9, 1.7, 1.5])
    assert list(record.bleu.values) == [5, 10, 15, 20, 25]
    assert record.learning_rate.values[-1] == 0
    (session,) = record.sessions
    assert (session.started, session.ended) == (0, 250)


def test_of_the_checkpoints_of_a_run_the_last_tells_all(tmp_path: Path) -> None:
    for last in (40, 80):
        write(tmp_path / f"out/checkpoint-{last}/trainer_state.json", state(last))
    record = read_run(tmp_path / "out")
    assert record.last_step == 80
    assert record.state == "unknown"
    assert not record.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"log_history": [{"step": 1, "lo', "is not whole JSON"),
        ('{"log_history": ' + "[" * 100_000, "is not whole JSON"),
        ('{"log_history": 3}', "has no log_history"),
        ('{"log_history": [{"step": 1, "loss": 1%s}]}' % ("0" * 400), "none of the scalars is known"),
        ('{"log_history": [{"step": 1, "epoch": 0.5}]}', "none of the scalars is known"),
    ],
)
def test_broken_ones_get_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(text + "\n")
    with pytest.raises(TandemError, match=said):
        read_run(path)
