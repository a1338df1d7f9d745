"""JoeyNMT: validations of older and newer versions, completed by the training log."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

from tandem.reporting.examine_run import report
from tandem.reporting.formats.find_run import read_run
from tandem.reporting.formats.joeynmt import read_joeynmt
from tandem.reporting.render.plotly_charts import drawings, embedded

NEWER = (
    "Steps: 100\tloss: 3.00000\tacc: 0.2\tppl: 20.00000\tbleu: 1.50000\tLR: 0.00040000\t*\n"
    "Steps: 200\tloss: 2.50000\tacc: 0.3\tppl: 12.00000\tbleu: 9.25000\tLR: 0.00020000\t\n"
)
OLDER = (
    "Steps: 100\tLoss: 91234.50000\tPPL: 20.00000\tbleu: 1.50000\tLR: 0.00040000\t*\n"
    "Steps: 200\tLoss: 71234.50000\tPPL: 12.00000\tbleu: 9.25000\tLR: 0.00020000\t\n"
)
LOG = """2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.data.src.lang : nl
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.data.trg.lang : da
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.training.learning_rate : 0.0004
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.training.scheduling : plateau
2023-05-01 10:00:00,000 - INFO - joeynmt.helpers - cfg.training.updates : 900
2023-05-01 10:00:01,000 - INFO - joeynmt.model - Total params: 7654321
2023-05-01 10:01:00,000 - INFO - joeynmt.training - Epoch   1, Step:       50, Batch Loss:     3.9, Lr: 0.000400
2023-05-01 10:01:25,000 - INFO - joeynmt.training - Epoch   1, Step:      100, Batch Loss:     3.1, Lr: 0.000400
2023-05-01 10:01:39,000 - INFO - joeynmt.prediction - Generation took 14.5[sec].
2023-05-01 10:01:40,000 - INFO - joeynmt.metrics - nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.0.0
2023-05-01 10:01:40,000 - INFO - joeynmt.prediction - Evaluation result (greedy): bleu:   1.50, loss:  29.7, \
ppl:  20.00, acc:   0.50, 0.5[sec]
2023-05-01 10:02:05,000 - INFO - joeynmt.training - Epoch   1, Step:      150, Batch Loss:     2.7, Lr: 0.000400
2023-05-01 10:02:30,000 - INFO - joeynmt.training - Epoch   1, Step:      200, Batch Loss:     2.6, Lr: 0.000400
"""


@pytest.mark.parametrize("text", [NEWER, OLDER], ids=["newer", "older"])
def test_validations_of_all_versions_are_per_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "anything.txt"
    path.write_text(text)
    record = read_run(path)
    assert record.source == "JoeyNMT run"
    assert record.state == "unknown"
    assert list(record.eval_loss.at) == [100, 200]
    assert list(record.eval_loss.values) == pytest.approx([math.log(20), math.log(12)])
    assert list(record.bleu.values) == [1.5, 9.25]
    assert list(record.learning_rate.values) == [0.0004, 0.0002]


def test_a_training_that_ends_in_nan_is_read_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "validations.txt"
    row = "Steps: {}\tloss: nan\tppl: nan\tbleu: {}\tLR: 0.1\t\n"
    path.write_text(row.format(10, 1.5) + row.format(20, "nan") + row.format(30, "nan"))
    with warnings.catch_warnings(action="error"):
        record = read_run(path)
    assert list(record.bleu.finite.values) == [1.5]


def test_without_perplexity_the_loss_counts(tmp_path: Path) -> None:
    path = tmp_path / "validations.txt"
    path.write_text("Steps: 10\tloss: 2.5\tLR: 0.1\t*\nSteps: 20\tloss: nan\tLR: 0.1\t\n")
    values = read_run(path).eval_loss.values
    assert values[0] == 2.5
    assert np.isnan(values[1])


def test_a_step_that_is_too_large_for_a_number_has_no_place_in_a_chart(tmp_path: Path) -> None:
    path = tmp_path / "validations.txt"
    path.write_text(NEWER + f"Steps: {'9' * 400}\tloss: 2.4\tppl: 11.0\tbleu: 9.5\tLR: 0.0002\t\n")
    made = report(path)
    assert json.loads(embedded(made.axis, drawings(made.charts)))["span"] == [100, 200]


def test_the_log_beside_it_completes_the_run(tmp_path: Path) -> None:
    (tmp_path / "validations.txt").write_text(NEWER)
    (tmp_path / "train.log").write_text(LOG + "2023-05-01 10:02:40,000 - INFO - x - Training ended after   1 epochs.\n")
    record = read_run(tmp_path)
    assert record.problems == ()
    assert record.state == "finished"
    assert list(record.train_loss.values) == [3.9, 3.1, 2.7, 2.6]
    assert list(record.step_seconds.at) == [100, 200]
    assert list(record.step_seconds.values) == pytest.approx([0.5, 0.5])
    assert record.seconds == {"other": pytest.approx(75.0), "evaluation": pytest.approx(15.0)}
    assert record.team.parameters == 7_654_321
    assert record.max_steps == 900
    assert record.bleu_note == "sacreBLEU nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.0.0"
    assert [text.language for text in record.texts] == ["nl", "da"]
    assert record.schedule is not None
    assert "plateau" in record.schedule.explanation
    (session,) = record.sessions
    assert session.ended is not None
    assert session.started is not None
    assert session.ended - session.started == 90


def test_the_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(LOG + "RuntimeError: CUDA out of memory. Tried to allocate\n")
    record = read_run(path)
    assert list(record.eval_loss.values) == pytest.approx([math.log(20)])
    assert record.eval_loss.at[0] == 100
    assert record.state == "crashed"
    assert "batch_size smaller" in (record.failure or "")


def test_a_loss_per_sentence_is_not_mixed_with_one_per_token(tmp_path: Path) -> None:
    path = tmp_path / "validations.txt"
    path.write_text(NEWER)
    log = tmp_path / "train.log"
    log.write_text(
        "".join(f"2020-01-01 00:00:0{n} Epoch 1 Step: {n * 50} Batch Loss: 60.5 Lr: 0.1\n" for n in range(1, 5))
    )
    record = read_joeynmt(path, log)
    assert len(record.train_loss) == 0
    assert any("per token" in problem for problem in record.problems)


def test_of_two_runs_in_a_file_the_longer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "validations.txt"
    third = "Steps: 300\tloss: 2.0\tppl: 8.0\tbleu: 11.5\tLR: 0.0001\t\n"
    longer = NEWER + third
    for text in (longer + NEWER.replace("20.0", "90.0"), NEWER.replace("20.0", "90.0") + longer):
        path.write_text(text)
        record = read_run(path)
        assert list(record.eval_loss.values) == pytest.approx([math.log(20), math.log(12), math.log(8)])
        assert any("not those up to step 200" in problem for problem in record.problems)
    path.write_text(longer + NEWER.splitlines(keepends=True)[1] + third)
    assert read_run(path).problems == ()


def test_of_the_log_the_run_that_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "validations.txt").write_text(NEWER)
    ended = "2023-05-01 10:02:40,000 - INFO - x - Training ended after   1 epochs.\n"
    aborted = LOG[: LOG.index("2023-05-01 10:01:25")].replace("updates : 900", "updates : 7")
    for text in (LOG + ended + aborted * 3, aborted * 3 + LOG + ended):
        (tmp_path / "train.log").write_text(text)
        record = read_run(tmp_path)
        assert (record.state, record.max_steps) == ("finished", 900)
        assert list(record.train_loss.at) == [50, 100, 150, 200]
