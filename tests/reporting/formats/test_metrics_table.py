"""Tables: names in all spellings, separators, missing cells, axes, scales."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tandem.reporting.formats.find_run import read_run
from tandem.reporting.formats.shared.metric_names import meaning_of
from tandem.reporting.judge.learning_verdicts import Learning
from tandem.reporting.run_record import RunRecord


def read(directory: Path, text: str, name: str = "curve.csv") -> RunRecord:
    path = directory / name
    path.write_text(text)
    return read_run(path)


@pytest.mark.parametrize("separator", [",", ";", "\t", ", "])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_separators_and_ends(tmp_path: Path, separator: str, end: str) -> None:
    rows = [["step", "train_loss", "val_loss", "BLEU", "lr"], ["10", "3.5", "3.25", "4.5", "1e-3"]]
    rows.append(["20", "3.0", "2.75", "8.25", "5e-4"])
    record = read(tmp_path, (end or "\n").join(separator.join(row) for row in rows) + end)
    assert record.axis == "step"
    assert list(record.train_loss.values) == [3.5, 3.0]
    assert list(record.eval_loss.values) == [3.25, 2.75]
    assert list(record.bleu.values) == [4.5, 8.25]
    assert list(record.learning_rate.values) == [1e-3, 5e-4]
    assert list(record.eval_loss.at) == [10, 20]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("loss", "train_loss"),
        ("Train Loss", "train_loss"),
        ("trainLoss", "train_loss"),
        ("training/loss", "train_loss"),
        ("valid_loss", "eval_loss"),
        ("val-loss", "eval_loss"),
        ("Loss/validation", "eval_loss"),
        ("devLoss", "eval_loss"),
        ("validloss", "eval_loss"),
        ("eval/cross_entropy", "eval_loss"),
        ("perplexity", "train_ppl"),
        ("valid_ppl", "eval_ppl"),
        ("eval_BLEU", "bleu"),
        ("sacrebleu", "bleu"),
        ("Bleu Score", "bleu"),
        ("LR", "learning_rate"),
        ("learning_rate", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"),
        ("step_time", "step_seconds"),
        ("time_per_step", "step_seconds"),
        ("sec/step", "step_seconds"),
        ("loss_scale", None),
        ("best_loss", None),
        ("gradient_norm", None),
        ("bleu_brevity_penalty", None),
        ("eval/steps_per_second", None),
        ("accuracy", None),
        ("epoch", None),
        ("colour", None),
    ],
)
def test_what_names_mean(name: str, meaning: str | None) -> None:
    named = meaning_of(name)
    assert (None if named is None else named.meaning) == meaning


@pytest.mark.parametrize(("name", "value", "seconds"), [("step_time_ms", 250, 0.25), ("global_step/sec", 4, 0.25)])
def test_units_of_step_times(tmp_path: Path, name: str, value: float, seconds: float) -> None:
    record = read(tmp_path, f"step,loss,{name}\n1,3.5,{value}\n2,3.4,{value}\n")
    assert list(record.step_seconds.values) == [seconds, seconds]


def test_a_plain_loss_is_what_the_file_is_named_for(tmp_path: Path) -> None:
    text = "epoch,loss,ppl\n0,2.0,7.4\n1,1.5,4.5\n"
    assert list(read(tmp_path, text, "m.valid.csv").eval_loss.values) == [2.0, 1.5]
    plain = read(tmp_path, text, "m.csv")
    assert list(plain.train_loss.values) == [2.0, 1.5]
    assert plain.axis == "epoch"


def test_perplexity_alone_becomes_a_loss(tmp_path: Path) -> None:
    record = read(tmp_path, "update\tvalid_ppl\n100\t50\n200\t20\n300\t0\n")
    assert list(record.eval_loss.values)[:2] == pytest.approx([math.log(50), math.log(20)])
    assert np.isnan(record.eval_loss.values[2])


def test_perplexity_alone_is_of_an_evaluation(tmp_path: Path) -> None:
    assert len(read(tmp_path, "Step,PPL\n500,50\n1000,20\n").eval_loss) == 2
    assert len(read(tmp_path, "Step,loss,PPL\n500,3.9,50\n1000,3.0,20\n").eval_loss) == 0
    assert len(read(tmp_path, "Step,train_PPL\n500,50\n1000,20\n").eval_loss) == 0


def test_bleu_from_0_to_1_is_multiplied_and_said(tmp_path: Path) -> None:
    record = read(tmp_path, "step,bleu\n100,0.05\n200,0.31\n")
    assert list(record.bleu.values) == pytest.approx([5.0, 31.0])
    assert "multiplied by 100" in (record.bleu_note or "")


def test_bleu_before_training_that_cannot_be(tmp_path: Path) -> None:
    record = read(tmp_path, "step,bleu\n0,0.95\n100,0.05\n200,0.31\n")
    assert list(record.bleu.at) == [100, 200]
    assert any("before any training" in problem for problem in record.problems)
    # Epoch 0 is a whole epoch, and a model may get worse from there.
    assert len(read(tmp_path, "epoch,bleu\n0,9.5\n1,0.5\n2,0.1\n").bleu) == 3


def test_missing_cells_and_what_is_not_a_number(tmp_path: Path) -> None:
    sparse = "step,loss,val_loss\n1,5.0,nan\n2,4.5,4.75\n3,4.0,\n4,3.5,nan\n5,3.0,3.25\n6,2.9,nan\n"
    record = read(tmp_path, sparse)
    assert list(record.eval_loss.at) == [2, 5]
    assert len(record.train_loss) == 6
    diverged = read(tmp_path, "step,val_loss\n1,5.0\n2,6.0\n3,nan\n4,nan\n")
    assert list(diverged.eval_loss.at) == [1, 2, 3, 4]
    assert np.isnan(diverged.eval_loss.values[2:]).all()


def test_steps_that_begin_anew_in_every_epoch(tmp_path: Path) -> None:
    record = read(tmp_path, "epoch,step,loss\n1,1,5.0\n1,2,4.0\n2,1,3.5\n2,2,3.0\n3,1,2.5\n3,2,2.0\n")
    assert record.axis == "epoch"
    assert list(record.train_loss.values) == [4.0, 3.0, 2.0]
    resumed = read(tmp_path, "epoch,step,loss\n1,1,5.0\n2,2,4.0\n3,3,3.5\n4,4,3.25\n2,2,3.9\n3,3,3.4\n")
    assert resumed.axis == "step"
    assert list(resumed.train_loss.values) == [5.0, 3.9, 3.4, 3.25]


def test_rows_are_counted_where_nothing_else_counts(tmp_path: Path) -> None:
    record = read(tmp_path, "valid_loss,bleu\n5.0,1.5\n4.0,2.5\n")
    assert list(record.eval_loss.at) == [1, 2]
    assert any("rows are counted" in problem for problem in record.problems)


@pytest.mark.parametrize(
    ("cut", "bleu"), [("30,3.5,12.5", [1.5, 2.5, 12.5]), ("30,3.5,1", [1.5, 2.5]), ("30,3.", [1.5, 2.5])]
)
def test_a_last_row_that_was_cut_off(tmp_path: Path, cut: str, bleu: list[float]) -> None:
    record = read(tmp_path, "step,valid_loss,bleu\n10,5.5,1.5\n20,4.5,2.5\n" + cut)
    assert list(record.bleu.values) == bleu
    assert set(record.eval_loss.values) <= {5.5, 4.5, 3.5}


@pytest.mark.parametrize(("loss", "scale"), [("5.1", 1), ("4.5", 100)])
def test_bleu_up_to_1_of_a_model_that_learnt_nothing_is_not_a_share(tmp_path: Path, loss: str, scale: int) -> None:
    record = read(tmp_path, f"step,val_loss,bleu\n100,7.5,0.05\n200,{loss},0.31\n300,6.0,0.3\n")
    assert record.bleu.values.max() == pytest.approx(0.31 * scale)
    assert ("taken to be 0 to 100" if scale == 1 else "multiplied by 100") in (record.bleu_note or "")


def test_a_tail_of_nan_is_kept_also_after_a_lone_one(tmp_path: Path) -> None:
    text = "step,val_loss\n1,5.0\n2,nan\n3,4.0\n4,3.5\n5,nan\n6,nan\n7,nan\n"
    curve = read(tmp_path, text).eval_loss
    assert list(curve.at) == [1, 3, 4, 5, 6, 7]
    assert np.isnan(curve.values[3:]).all()
    every_third = "".join(f"{row},{4.0 if row % 3 == 0 else 'nan'}\n" for row in range(1, 12))
    assert list(read(tmp_path, "step,val_loss\n" + every_third).eval_loss.at) == [3, 6, 9]
    tail = "".join(f"{row},nan\n" for row in range(12, 20))
    assert read(tmp_path, "step,val_loss\n" + every_third + tail).eval_loss.at[-1] == 19


@pytest.mark.parametrize("axis", ["step", "epoch"])
def test_of_two_runs_in_a_table_the_longer_is_read(tmp_path: Path, axis: str) -> None:
    longer, shorter = "1,5.0\n2,4.0\n3,3.0\n4,2.5\n", "1,5.5\n2,4.5\n3,3.5\n"
    header = f"{axis},val_loss\n"
    for text in (longer + shorter, shorter + header + longer):
        record = read(tmp_path, header + text)
        assert list(record.eval_loss.values) == [5.0, 4.0, 3.0, 2.5]
        (problem,) = record.problems
        assert f"not those up to {axis} 3" in problem
    resumed = read(tmp_path, header + longer + "3,3.1\n4,2.6\n5,2.4\n")
    assert list(resumed.eval_loss.values) == [5.0, 4.0, 3.1, 2.6, 2.4]
    assert resumed.problems == ()


def test_two_runs_with_steps_and_epochs(tmp_path: Path) -> None:
    run = "".join(f"{epoch},{epoch * 10},{6 - epoch}\n" for epoch in range(1, 4))
    record = read(tmp_path, "epoch,step,loss\n" + run + run)
    assert (record.axis, list(record.train_loss.at)) == ("step", [10, 20, 30])


def test_rows_of_training_before_those_of_evaluation_are_one_run(tmp_path: Path) -> None:
    record = read(tmp_path, "step,loss,val_loss\n1,5.0,\n2,4.5,\n3,4.0,\n1,,5.5\n3,,4.5\n")
    assert (len(record.train_loss), len(record.eval_loss), record.problems) == (3, 2, ())


def overfitting(record: RunRecord) -> str:
    return Learning(record).overfitting.verdict


def test_a_log_and_the_table_of_its_evaluations_get_the_same_verdict(tmp_path: Path) -> None:
    """The loss of a sentence rises by 0.3 in the end: a hundredth for each of its words, which is nothing."""
    steps = [200 * number for number in range(1, 21)]
    losses = [50 + 200 / number if number < 15 else 63.4 + 0.06 * (number - 15) for number in range(1, 21)]
    scores = [30 - 100 / (number + 4) for number in range(1, 21)]
    lines, rows = [], ["step,cross-entropy,bleu"]
    for step, loss, score in zip(steps, losses, scores, strict=True):
        for name, value in (("cross-entropy", loss), ("bleu", score)):
            lines.append(f"[2022-03-04 05:00:00] [valid] Ep. 1 : Up. {step} : {name} : {value:.4f} : new best")
        rows.append(f"{step},{loss:.4f},{score:.2f}")
    log = read(tmp_path, "\n".join(lines) + "\n", "train.log")
    table = read(tmp_path, "\n".join(rows).replace("cross-entropy", "valid_loss") + "\n")
    assert log.source == "Marian log"
    assert overfitting(log) == overfitting(table) == "no"
    assert table.loss_unit == "nats per sentence"
    assert any("too high to be per token" in problem for problem in table.problems)


def test_perplexity_tells_the_unit_of_a_loss(tmp_path: Path) -> None:
    rows = "".join(f"{step},{700 + 9000 / step},{math.exp(1.4 + 18 / step):.4f}\n" for step in range(10, 200, 10))
    record = read(tmp_path, f"step,valid_loss,valid_ppl\n{rows}")
    assert record.tokens_per_loss_value == 1
    assert record.eval_loss.values[-1] == pytest.approx(1.4 + 18 / 190, abs=1e-3)
    agreeing = read(tmp_path, "step,valid_loss,valid_ppl\n10,2.0,7.5\n20,1.5,4.6\n")
    assert list(agreeing.eval_loss.values) == [2.0, 1.5]


def test_beside_the_objective_the_likelihood_is_the_loss(tmp_path: Path) -> None:
    record = read(tmp_path, "step,valid_loss,valid_nll_loss\n10,3.0,2.0\n20,2.5,1.5\n")
    assert list(record.eval_loss.values) == [2.0, 1.5]


@pytest.mark.parametrize("axis", ["step", "epoch", "row"])
def test_a_score_of_the_reference_is_left_out_whatever_counts(tmp_path: Path, axis: str) -> None:
    bleus = [0.95, 0.12, 0.2, 0.26, 0.3, 0.32, 0.33]
    every = 4000 if axis == "step" else 1
    rows = "".join(f"{every * n},{9 if n == 0 else 2 + 3 / n},{bleu}\n" for n, bleu in enumerate(bleus))
    record = read(tmp_path, f"{axis},valid_loss,bleu\n{rows}")
    assert record.bleu.values.max() == pytest.approx(33.0)
    assert overfitting(record) == "no"


def test_the_metrics_of_lightning(tmp_path: Path) -> None:
    """Its CSVLogger leaves cells empty, and counts steps from 0 over all epochs."""
    text = (
        "epoch,lr-Adam,step,train_loss_epoch,train_loss_step,val_bleu,val_loss\n"
        ",0.001,9,,,,\n0,,9,,3.5,,\n,0.001,19,,,,\n0,,19,,3.25,,\n0,,19,,,4.5,3.0\n0,,19,3.4,,,\n"
        ",0.0005,29,,,,\n1,,29,,3.0,,\n,0.0005,39,,,,\n1,,39,,2.75,,\n1,,39,,,9.5,2.5\n1,,39,2.9,,,\n"
    )
    record = read(tmp_path, text, "metrics.csv")
    assert record.axis == "step"
    assert list(zip(record.train_loss.at, record.train_loss.values, strict=True)) == [
        (9, 3.5), (19, 3.25), (29, 3.0), (39, 2.75),
    ]  # fmt: skip
    assert list(record.eval_loss.values) == [3.0, 2.5]
    assert list(record.bleu.values) == [4.5, 9.5]
    assert list(record.learning_rate.values) == [1e-3, 1e-3, 5e-4, 5e-4]
