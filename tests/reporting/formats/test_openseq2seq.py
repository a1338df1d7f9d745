"""OpenSeq2Seq console logs: numbers, settings, interleaved ranks, ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tandem.reporting.examine_run import examine
from tandem.reporting.formats.find_run import read_run
from tandem.reporting.run_record import RunRecord

SETTINGS = """*** Training config:
{'batch_size_per_gpu': 128,
 'data_layer': <class 'open_seq2seq.data.text2text.text2text.ParallelTextDataLayer'>,
 'data_layer_params': {'max_length': 50,
                       'source_file': '/text/news.clean.fi.tok',
                       'target_file': '/text/news.clean.sv.tok'},
 'dtype': 'mixed',
 'lr_policy': <function transformer_policy at 0x7f00>,
 'lr_policy_params': {'d_model': 256,
                      'learning_rate': 1.5,
                      'warmup_steps': 400},
 'max_steps': 5000,
 'num_gpus': 1,
 'print_loss_steps': 10,
 'use_horovod': True}
*** Evaluation config:
{'batch_size_per_gpu': 8,
 'data_layer_params': {'max_length': 999}}
"""
START = "*** Using horovod\n*** Starting training from scratch\n" + SETTINGS
TEAM = """[alpha:00041] WARNING: something about a shell
*** Building graph in Horovod rank: 1
*** Building graph in Horovod rank: 0
*** Building graph in Horovod rank: 2
*** Total trainable parameters: 1200000
name: Some GPU 9000 major: 7 minor: 0 memoryClockRate(GHz): 1.0
beta:12:34 [0] NCCL INFO rank 2 nranks 3
"""


def progress(first: int, last: int, *, every: int = 10, seconds: float = 2.0) -> str:
    lines = []
    for step in range(first, last + 1, every):
        lines.append(f"*** Global step {step}: ***     Train loss: {9 - step / 100:.4f} ")
        lines.append(f"time per step = 0:00:{seconds + (step % 20) / 1000:.3f}")
        lines.append("***     Train Source[0]:     <s> Global step 77: time per step = 0:00:9.9 </s>")
    return "\n".join(lines) + "\n"


def evaluation(loss: str, bleu: str) -> str:
    return (
        "*** Running evaluation on a validation set:\n"
        "***     *****EVAL Source[0]:     <s> Validation loss: 99 </s>\n"
        f"***     Validation loss: {loss} \n***     Eval BLUE score: {bleu}\n"
    )


def read(directory: Path, text: str) -> RunRecord:
    path = directory / "nohup.out"
    path.write_text(text, encoding="utf-8")
    return read_run(path)


def test_the_numbers_of_a_whole_run(tmp_path: Path) -> None:
    end = "*** Finished training\n*** Avg time per step: 2.000s\n*** Avg objects per second: 3000.000\n"
    text = START + TEAM + evaluation("9.1", "0.93") + progress(0, 50) + evaluation("5.5", "0.2")
    record = read(tmp_path, text + progress(60, 60, seconds=3.0) + progress(70, 100) + evaluation("5.0", "0.25") + end)
    assert record.source == "OpenSeq2Seq log"
    assert record.state == "finished"
    assert list(record.train_loss.at) == list(range(0, 101, 10))
    assert record.train_loss.values[-1] == pytest.approx(8.0)
    assert list(zip(record.eval_loss.at, record.eval_loss.values, strict=True)) == [(50, 5.5), (100, 5.0)]
    assert list(record.bleu.values) == [20.0, 25.0]
    assert record.bleu_note is not None
    assert "subword" in record.bleu_note
    # The first time is the program's start, and the one after an evaluation counts that, too.
    assert list(record.step_seconds.at) == [10, 20, 30, 40, 50, 70, 80, 90, 100]
    assert record.seconds["evaluation"] == pytest.approx(10.0, abs=0.2)
    (session,) = record.sessions
    assert (session.first_step, session.last_step) == (0, 100)
    assert session.startup_seconds == pytest.approx(20.0)
    assert record.max_steps == 5000
    assert record.steps_per_point == 10


def test_the_team_and_what_it_exchanges(tmp_path: Path) -> None:
    end = "*** Finished training\n*** Avg time per step: 2.000s\n*** Avg objects per second: 3000.000\n"
    team = read(tmp_path, START + TEAM + progress(0, 20) + end).team
    assert (team.ranks, team.hosts, team.parameters) == (3, 2, 1_200_000)
    assert (team.precision, team.gradient_bytes_per_value, team.exchange) == ("mixed", 4, "allreduce")
    assert team.device == "Some GPU 9000"
    assert team.tokens_per_step == 6000
    assert team.most_positions_per_rank == 128 * 50


@pytest.mark.parametrize(
    ("given", "precision", "size"),
    [("tf.float32", "float32", 4), ("<dtype: 'float16'>", "float16", 2), ("'mixed'", "mixed", 4)],
)
def test_precision_in_all_spellings(tmp_path: Path, given: str, precision: str, size: int) -> None:
    team = read(tmp_path, START.replace("'dtype': 'mixed'", f"'dtype': {given}") + progress(0, 10)).team
    assert (team.precision, team.gradient_bytes_per_value) == (precision, size)


def test_without_horovod_the_devices_are_the_ranks(tmp_path: Path) -> None:
    alone = START.replace("'use_horovod': True", "'use_horovod': False").replace("'num_gpus': 1", "'num_gpus': 4")
    assert read(tmp_path, alone + progress(0, 10)).team.ranks == 4


def test_learning_rate_and_languages_from_the_settings(tmp_path: Path) -> None:
    record = read(tmp_path, START + progress(0, 10))
    assert record.schedule is not None
    assert record.schedule.rate is not None
    for step in (1, 100, 400, 4000):
        expected = 1.5 * 256**-0.5 * min(step**-0.5, step * 400**-1.5)
        assert record.schedule.rate(step) == pytest.approx(expected)
    assert "400 steps" in record.schedule.explanation
    assert [text.language for text in record.texts] == ["fi", "sv"]


def test_another_policy_is_explained_and_not_computed(tmp_path: Path) -> None:
    other = START.replace("transformer_policy", "exp_decay").replace("'d_model': 256", "'decay_steps': 900")
    schedule = read(tmp_path, other + progress(0, 10)).schedule
    assert schedule is not None
    assert schedule.rate is None
    assert "exp_decay" in schedule.explanation
    assert "900" in schedule.explanation


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    record = read(tmp_path, START.replace("'warmup_steps': 400", "'warmup_steps': 0") + progress(0, 10))
    assert record.schedule is not None
    assert record.schedule.rate is None
    digits = f"*** Total trainable parameters: {'9' * 5000}\n"
    assert read(tmp_path, START + digits + progress(0, 10)).team.parameters is None


def test_lines_of_other_ranks_in_between(tmp_path: Path) -> None:
    broken = (
        "*** Global step 30: Encoder: something of another rank\n"
        "beta:12:34 [0] NCCL INFO whatever\n"
        "***     Train loss: 6.5000 \nrank 2 says: time per step = 0:01:2.500\n"
    )
    record = read(tmp_path, START + progress(0, 20) + broken)
    assert record.train_loss.values[-1] == 6.5
    assert record.step_seconds.values[-1] == 62.5


def test_not_a_number_is_kept(tmp_path: Path) -> None:
    record = read(tmp_path, START + progress(0, 20) + "*** Global step 30: ***     Train loss: nan \n")
    assert np.isnan(record.train_loss.values[-1])


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_log_cut_anywhere_says_nothing_wrong(tmp_path: Path, cut: int) -> None:
    whole = START + progress(0, 100) + evaluation("5.25", "0.2475")
    record = read(tmp_path, whole[:-cut])
    assert set(record.eval_loss.values) <= {5.25}
    assert set(record.bleu.values) <= {24.75}
    assert record.train_loss.at[-1] == 100


def test_a_continued_run_has_two_sessions(tmp_path: Path) -> None:
    again = "*** Restored checkpoint from /runs/x/model.ckpt-40. Resuming training\n" + SETTINGS
    record = read(tmp_path, START + progress(0, 60) + again + progress(40, 90))
    assert [(session.first_step, session.last_step) for session in record.sessions] == [(0, 60), (40, 90)]
    assert record.repeated_steps == 20
    assert record.problems == ()
    assert record.train_loss.at[-1] == 90


def test_of_two_runs_in_a_log_the_longer_is_read(tmp_path: Path) -> None:
    record = read(tmp_path, START + progress(0, 20) + START + progress(0, 90) + START)
    assert record.train_loss.at[-1] == 90
    assert len(record.sessions) == 1
    (problem,) = record.problems
    assert "3 runs" in problem
    assert "up to step 0 and 20" in problem


def test_out_of_memory(tmp_path: Path) -> None:
    fault = (
        "Traceback (most recent call last):\n"
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor\n"
    )
    record = read(tmp_path, START.replace("'mixed'", "tf.float32") + fault)
    assert record.state == "crashed"
    assert record.failure is not None
    assert "device memory" in record.failure
    assert "batch_size_per_gpu smaller (it was 128)" in record.failure
    assert "mixed" in record.failure


@pytest.mark.parametrize(
    ("line", "state", "word"),
    [
        ("ValueError: no such file\n", "crashed", "ValueError: no such file"),
        ("mpirun noticed that process rank 1 exited on signal 9 (Killed).\n", "crashed", "signal 9"),
        ("KeyboardInterrupt\n", "stopped", ""),
        ("", "unknown", ""),
    ],
)
def test_how_it_ended(tmp_path: Path, line: str, state: str, word: str) -> None:
    record = read(tmp_path, START + "OSError: early and survived\n" + progress(0, 20) + line)
    assert record.state == state
    assert word in (record.failure or "")


def test_mpirun_that_never_started_it(tmp_path: Path) -> None:
    record = read(
        tmp_path,
        "ssh: Could not resolve hostname node_a: Name or service not known\n"
        "ORTE was unable to reliably start one or more daemons.\n"
        "python: can't open file 'main.py': [Errno 2] No such file or directory\n"
        "mpirun detected that one or more processes exited\n",
    )
    assert record.state == "crashed"
    assert record.failure is not None
    assert "never started" in record.failure
    assert "node_a could not be resolved" in record.failure
    assert "main.py was not found" in record.failure


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        ("[alpha:00041] WARNING: something about a shell\n", None),
        ("beta:12:34 [0] NCCL INFO rank 2 nranks 3\n", None),
        ("".join(f"beta:12:34 [0] NCCL INFO rank {rank} nranks 3\n" for rank in range(3)), 1),
        ("[alpha:00041] WARNING\n[beta:00041] WARNING\n", 2),
        ("", None),
    ],
)
def test_one_host_name_does_not_prove_that_there_is_one_host(tmp_path: Path, said: str, hosts: int | None) -> None:
    ranks = "".join(f"*** Building graph in Horovod rank: {rank}\n" for rank in range(3))
    assert read(tmp_path, START + ranks + said + progress(0, 20)).team.hosts == hosts


def test_one_process_is_on_one_host(tmp_path: Path) -> None:
    alone = START.replace("'use_horovod': True", "'use_horovod': False").replace("'num_gpus': 1", "'num_gpus': 4")
    assert read(tmp_path, alone + "[alpha:00041] WARNING\n" + progress(0, 10)).team.hosts == 1


def test_a_clock_of_the_start_alone_does_not_tell_the_wall_time(tmp_path: Path) -> None:
    clock = "2021-05-06 07:08:{:02d}.12: I tensorflow/core/platform/cpu_feature_guard.cc:141] a CPU feature\n"
    crash = "Traceback (most recent call last):\nValueError: a bad shape\n"
    text = clock.format(1) + START + clock.format(6) + progress(0, 2310, seconds=1.6) + crash
    record = read(tmp_path, text)
    assert record.state == "crashed"
    took, trained = examine(record).questions[:2]
    assert "of wall time" not in took.answer
    assert "it took about 1 h 1 min of training for 2,310 steps, by the time of a step; the log has a clock for" in (
        took.answer
    )
    assert "so that this is an estimate" in took.answer
    assert took.verdict == "estimated"
    assert "wall_seconds" not in took.evidence
    assert trained.evidence.get("twice_the_steps_seconds", 3600) > 3000
