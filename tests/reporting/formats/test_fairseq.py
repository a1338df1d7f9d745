"""fairseq logs of all ages: plain, progress bar, JSON, with and without moments."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tandem.reporting.formats.find_run import read_run
from tandem.reporting.run_record import RunRecord

SETTINGS = (
    "Namespace(arch='transformer', distributed_world_size=3, fp16=True, lr=[0.001], lr_scheduler='inverse_sqrt', "
    "max_epoch=0, max_update=900, source_lang='pl', target_lang='cs', warmup_init_lr=1e-07, warmup_updates=100)\n"
    "| data-bin train pl-cs 4321 examples\n| num. model params: 5000000 (num. trained: 5000000)\n| training on 3 GPUs\n"
)
OLDER = (
    SETTINGS + "| epoch 001:     50 / 100 loss=9.000, nll_loss=8.000, ppl=256.00, wps=100, ups=0.5, wpb=200, bsz=5, "
    "num_updates=50, lr=0.0005, gnorm=1.5, clip=0%, oom=0, wall=70, train_wall=60\n"
    "| epoch 001:    100 / 100 loss=8.000, nll_loss=7.000, ppl=128.00, wps=100, ups=0.5, wpb=200, bsz=5, "
    "num_updates=100, lr=0.001, gnorm=1.5, clip=0%, oom=0, wall=180, train_wall=160\n"
    "| epoch 001 | loss 8.500 | nll_loss 7.500 | ppl 181.02 | wps 100 | ups 0.5 | wpb 200 | bsz 5 | num_updates 100 "
    "| lr 0.001 | gnorm 1.5 | clip 0% | oom 0 | wall 180 | train_wall 160\n"
    "| epoch 001 | valid on 'valid' subset | valid_loss 7.5 | valid_nll_loss 6.5 | valid_ppl 90.51 | num_updates 100\n"
    "| epoch 002 | valid on 'valid' subset | loss 7.0 | nll_loss 6.0 | ppl 64.00 | num_updates 200 | best_loss 7.0\n"
)
NEWER = (
    "2021-02-03 04:00:00 | INFO | fairseq_cli.train | {'common': {'fp16': False}, 'optimization': {'max_update': 900, "
    "'lr': [0.001]}, 'lr_scheduler': {'_name': 'inverse_sqrt'}}\n"
    "2021-02-03 04:00:00 | INFO | fairseq_cli.train | num. shared model params: 5,000,000 (num. trained: 5,000,000)\n"
    "2021-02-03 04:00:00 | INFO | fairseq_cli.train | training on 3 devices (GPUs/TPUs)\n"
    "2021-02-03 04:00:50 | INFO | train_inner | epoch 001:     50 / 100 loss=9.0, nll_loss=8.0, ppl=256, wps=400, "
    "ups=2, wpb=200, bsz=5, num_updates=50, lr=0.0005, gnorm=1.5, train_wall=25, wall=30\n"
    "2021-02-03 04:01:15 | INFO | train_inner | epoch 001:    100 / 100 loss=8.0, nll_loss=7.0, ppl=128, wps=400, "
    "ups=2, wpb=200, bsz=5, num_updates=100, lr=0.001, gnorm=1.5, train_wall=25, wall=60\n"
    "2021-02-03 04:01:20 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.5 | nll_loss 6.5 | ppl 90.51 "
    "| bleu 12.5 | wps 900 | wpb 100 | bsz 3 | num_updates 100 | best_bleu 12.5\n"
    "2021-02-03 04:01:20 | INFO | train | epoch 001 | loss 8.5 | nll_loss 7.5 | ppl 181.02 | wps 390 | ups 2 | wpb 200 "
    "| bsz 5 | num_updates 100 | lr 0.001 | gnorm 1.5 | train_wall 50 | wall 65\n"
    "2021-02-03 04:01:50 | INFO | train_inner | epoch 002:     50 / 100 loss=7.0, nll_loss=6.0, ppl=64, wps=100, "
    "ups=0.5, wpb=200, bsz=5, num_updates=150, lr=0.0009, gnorm=1.5, train_wall=25, wall=95\n"
    "2021-02-03 04:02:20 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 7.0 | nll_loss 6.0 | ppl 64 "
    "| bleu 15.5 | wps 900 | wpb 100 | bsz 3 | num_updates 200 | best_bleu 15.5\n"
)


def as_json(kind: str, values: dict[str, object]) -> str:
    return f"2021-02-03 04:00:00 | INFO | {kind} | {json.dumps(values)}\n"


def validated(loss: float, nll_loss: float, bleu: float, updates: int) -> dict[str, object]:
    values = {"loss": loss, "nll_loss": nll_loss, "ppl": 9, "bleu": bleu, "num_updates": updates}
    return {f"valid_{name}": str(value) for name, value in values.items()}


JSON = (
    as_json("train_inner", {"epoch": 1, "update": 0.5, "loss": "9", "nll_loss": "8", "ppl": "9", "num_updates": "50"})
    + as_json("train_inner", {"epoch": 1, "update": 1, "loss": "8", "nll_loss": "7", "ppl": "9", "num_updates": "100"})
    + as_json("valid", {"epoch": 1, **validated(7.5, 6.5, 12.5, 100)})
    + as_json("train", {"epoch": 1, "train_loss": "8.5", "train_nll_loss": "7.5", "train_ppl": "9", "train_wall": "50"})
    + as_json("valid", {"epoch": 2, **validated(7, 6, 15.5, 200)})
)
OLDEST = (
    "| epoch 001   1000 / 2000 loss=9.17 (9.20), wps=959, wpb=897, bsz=32, lr=0.001, clip=100%, gnorm=2.7\n"
    "| epoch 001 | train loss 8.00 | train ppl 256.0 | s/checkpoint    7748 | words/s    961 | lr 0.001\n"
    "| epoch 001 | valid on 'valid' subset | valid loss 6.50 | valid ppl 90.51\n"
    "| epoch 002 | train loss 7.00 | train ppl 128.0 | s/checkpoint    7748 | words/s    961 | lr 0.001\n"
    "| epoch 002 | valid on 'valid' subset | valid loss 6.00 | valid ppl 64.00\n"
)


def read(directory: Path, text: str) -> RunRecord:
    path = directory / "some.log"
    path.write_text(text)
    return read_run(path)


@pytest.mark.parametrize("text", [OLDER, NEWER, JSON], ids=["older", "newer", "json"])
def test_losses_are_nats_over_updates(tmp_path: Path, text: str) -> None:
    record = read(tmp_path, text)
    assert record.source == "fairseq log"
    assert record.axis == "step"
    assert list(record.eval_loss.at) == [100, 200]
    assert list(record.eval_loss.values) == pytest.approx([6.5 * math.log(2), 6 * math.log(2)])
    assert list(record.train_loss.at)[:2] == [50, 100]
    assert list(record.train_loss.values)[:2] == pytest.approx([8 * math.log(2), 7 * math.log(2)])
    assert list(record.bleu.values) == ([] if text is OLDER else [12.5, 15.5])


def test_the_oldest_logs_count_epochs(tmp_path: Path) -> None:
    record = read(tmp_path, OLDEST)
    assert record.axis == "epoch"
    assert list(record.eval_loss.at) == [1, 2]
    assert list(record.eval_loss.values) == pytest.approx([math.log(90.51), math.log(64)])
    assert list(record.train_loss.values) == pytest.approx([math.log(256), math.log(128)])


def test_older_step_times_are_differences(tmp_path: Path) -> None:
    record = read(tmp_path, OLDER)
    assert list(record.step_seconds.at) == [100]
    assert record.step_seconds.values[0] == 2.0


def test_newer_step_times_leave_out_evaluations(tmp_path: Path) -> None:
    record = read(tmp_path, NEWER)
    assert list(record.step_seconds.at) == [100]
    assert record.step_seconds.values[0] == 0.5
    assert record.seconds == {"other": pytest.approx(50.0), "evaluation": pytest.approx((2 - 0.5) * 50)}
    (session,) = record.sessions
    assert session.started is not None
    assert session.ended is not None
    assert session.ended - session.started == 90


def test_team_settings_and_schedule(tmp_path: Path) -> None:
    record = read(tmp_path, OLDER)
    assert (record.team.ranks, record.team.parameters, record.team.exchange) == (3, 5_000_000, "allreduce")
    assert record.team.gradient_bytes_per_value == 2
    assert read(tmp_path, NEWER).team.gradient_bytes_per_value == 4
    assert record.max_steps == 900
    assert [(text.language, text.cleaned_lines) for text in record.texts] == [("pl", 4321), ("cs", 4321)]
    assert record.schedule is not None
    assert record.schedule.rate is not None
    assert record.schedule.rate(50) == pytest.approx(0.0005, rel=1e-3)
    assert record.schedule.rate(400) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("end", "state", "word", "not_finite"),
    [
        ("2021-02-03 04:02:30 | INFO | fairseq_cli.train | done training in 150.0 seconds\n", "finished", "", False),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n", "crashed", "--max-tokens", False),
        ("FloatingPointError: Minimum loss scale reached (0.0001).\n", "crashed", "loss scale", True),
        ("KeyboardInterrupt\n", "stopped", "", False),
        ("", "unknown", "", False),
    ],
)
def test_how_it_ended(tmp_path: Path, end: str, state: str, word: str, not_finite: bool) -> None:
    record = read(tmp_path, NEWER + end)
    assert record.state == state
    assert word in (record.failure or "")
    assert record.not_finite is not_finite


def test_a_progress_bar_redrawn_in_one_line(tmp_path: Path) -> None:
    bar = "".join(
        f"| epoch 001:  {n}%|#| {n}/90 [00:0{n}<00:30, 1s/it, loss={9 - n / 10}, ppl={80 - n}, num_updates={n}, lr=0\r"
        for n in range(1, 9)
    )
    record = read(tmp_path, bar)
    assert list(record.train_loss.at) == list(range(1, 9))


def test_the_first_subset_counts(tmp_path: Path) -> None:
    other = "| epoch 002 | valid on 'news' subset | loss 1.0 | nll_loss 1.0 | ppl 2.00 | num_updates 200\n"
    record = read(tmp_path, OLDER + other)
    assert record.eval_loss.values[-1] == pytest.approx(6 * math.log(2))
    assert any("'news'" in problem for problem in record.problems)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_log_cut_anywhere_says_nothing_wrong(tmp_path: Path, cut: int) -> None:
    record = read(tmp_path, OLDER[:-cut])
    assert set(record.eval_loss.values) <= {6.5 * math.log(2), 6 * math.log(2)}
    assert set(record.eval_loss.at) <= {100, 200}


def test_json_that_is_nested_too_deeply_is_passed_over(tmp_path: Path) -> None:
    record = read(tmp_path, OLDER + '| {"a":' + '{"a":' * 5000 + "}" * 5001 + "\n")
    assert list(record.eval_loss.at) == [100, 200]


def test_nested_settings_are_read_by_their_name(tmp_path: Path) -> None:
    schedule = read(tmp_path, NEWER).schedule
    assert schedule is not None
    assert schedule.explanation.startswith("follows the policy inverse_sqrt")
    nested = "{'_name': 'inverse_sqrt', 'warmup_updates': 100, 'warmup_init_lr': 0.0, 'lr': [0.001]}"
    whole = read(tmp_path, NEWER.replace("{'_name': 'inverse_sqrt'}", nested)).schedule
    assert whole is not None
    assert whole.rate is not None
    assert whole.rate(400) == pytest.approx(0.0005)


@pytest.mark.parametrize("text", [OLDER, NEWER, OLDEST], ids=["older", "newer", "oldest"])
def test_of_two_runs_in_a_log_the_longer_is_read(tmp_path: Path, text: str) -> None:
    lines = text.splitlines(keepends=True)
    shorter = "".join(lines[:-1]).replace("=900", "=7").replace("': 900", "': 7").replace("loss 7.0", "loss 1.0")
    whole = read(tmp_path, text)
    for both in (text + shorter, shorter + text):
        record = read(tmp_path, both)
        assert list(record.train_loss.values) == list(whole.train_loss.values)
        assert list(record.eval_loss.values) == list(whole.eval_loss.values)
        assert record.max_steps == whole.max_steps
        assert any("2 runs from scratch" in problem for problem in record.problems)
    resumed = read(tmp_path, text + lines[-1])
    assert resumed.problems == whole.problems


def test_epochs_without_updates_are_no_new_start(tmp_path: Path) -> None:
    assert read(tmp_path, JSON).problems == ()
