"""Marian logs: costs, scores, settings, sessions and ends."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tandem.reporting.formats.find_run import read_run
from tandem.reporting.run_record import RunRecord

SETTINGS = """[2022-03-04 05:00:00] [marian] Running on gamma as process 77 with command line:
[2022-03-04 05:00:00] [config] after-batches: 9000
[2022-03-04 05:00:00] [config] devices:
[2022-03-04 05:00:00] [config]   - 0
[2022-03-04 05:00:00] [config]   - 1
[2022-03-04 05:00:00] [config] learn-rate: 0.0002
[2022-03-04 05:00:00] [config] lr-decay: 0
[2022-03-04 05:00:00] [config] lr-decay-inv-sqrt:
[2022-03-04 05:00:00] [config]   - 400
[2022-03-04 05:00:00] [config] lr-warmup: 100
[2022-03-04 05:00:00] [config] sync-sgd: true
[2022-03-04 05:00:00] [config] train-sets:
[2022-03-04 05:00:00] [config]   - text/all.bpe.et
[2022-03-04 05:00:00] [config]   - text/all.bpe.lv
[2022-03-04 05:00:03] [data] Done shuffling 1,234 sentences (cached in RAM)
"""
PROGRESS = """[2022-03-04 05:01:00] Ep. 1 : Up. 100 : Sen. 6,400 : Cost 6.50000 * 90,000 after 90,000 : Time 55.00s : \
1600.00 words/s : L.r. 2.0000e-04
[2022-03-04 05:01:50] Ep. 1 : Up. 200 : Sen. 12,800 : Cost 6.00000000 * 90,000 after 180,000 : Time 50.00s : \
1600.00 words/s : L.r. 2.0000e-04
[2022-03-04 05:01:55] [valid] Ep. 1 : Up. 200 : cross-entropy : 140.25 : new best
[2022-03-04 05:02:00] [valid] Ep. 1 : Up. 200 : perplexity : 400.5 : new best
[2022-03-04 05:02:10] [valid] Ep. 1 : Up. 200 : bleu-detok : 3.25 : new best
[2022-03-04 05:03:00] Ep. 1 : Up. 300 : Sen. 19,200 : Cost 5.50000000 * 90,000 after 270,000 : Time 70.00s : \
1600.00 words/s : L.r. 2.0000e-04
[2022-03-04 05:03:50] Ep. 1 : Up. 400 : Sen. 25,600 : Cost 5.25000000 * 90,000 after 360,000 : Time 50.00s : \
1600.00 words/s : L.r. 2.0000e-04
[2022-03-04 05:04:10] [valid] Ep. 2 : Up. 400 : cross-entropy : 130.25 : stalled 1 times (last best: 140.25)
[2022-03-04 05:04:10] [valid] Ep. 2 : Up. 400 : perplexity : 300.5 : new best
[2022-03-04 05:04:10] [valid] Ep. 2 : Up. 400 : bleu-detok : 7.5 : new best
"""


def read(directory: Path, text: str) -> RunRecord:
    path = directory / "train.log"
    path.write_text(text)
    return read_run(path)


def test_the_numbers(tmp_path: Path) -> None:
    record = read(tmp_path, SETTINGS + PROGRESS + "[2022-03-04 05:05:00] Training finished\n")
    assert record.source == "Marian log"
    assert record.state == "finished"
    assert list(record.train_loss.at) == [100, 200, 300, 400]
    assert list(record.train_loss.values) == [6.5, 6.0, 5.5, 5.25]
    assert list(record.eval_loss.at) == [200, 400]
    assert list(record.eval_loss.values) == pytest.approx([math.log(400.5), math.log(300.5)])
    assert list(record.bleu.values) == [3.25, 7.5]
    assert "detokenised" in (record.bleu_note or "")
    assert set(record.learning_rate.values) == {2e-4}
    assert list(record.step_seconds.at) == [200, 400]
    assert set(record.step_seconds.values) == {0.5}
    assert record.seconds == {"other": pytest.approx(150.0), "evaluation": pytest.approx(20.0)}
    (session,) = record.sessions
    assert session.started is not None
    assert session.ended is not None
    assert session.ended - session.started == 300


def test_settings(tmp_path: Path) -> None:
    record = read(tmp_path, SETTINGS + PROGRESS)
    assert record.max_steps == 9000
    assert (record.team.ranks, record.team.hosts, record.team.exchange) == (2, 1, "allreduce")
    assert [(text.language, text.cleaned_lines) for text in record.texts] == [("et", 1234), ("lv", 1234)]
    assert record.schedule is not None
    assert record.schedule.rate is not None
    assert record.schedule.rate(50) == pytest.approx(1e-4)
    assert record.schedule.rate(300) == pytest.approx(2e-4)
    assert record.schedule.rate(1600) == pytest.approx(1e-4)


def test_words_are_preferred_and_a_cost_per_sentence_left_out(tmp_path: Path) -> None:
    plain = "".join(
        f"[2019-01-01 00:0{n}:00] Ep. 1 : Up. {n}00 : Sen. {n}00 : Cost {70 - n}.5 : Time 50.00s : 1600.00 words/s\n"
        f"[2019-01-01 00:0{n}:00] [valid] Ep. 1 : Up. {n}00 : ce-mean-words : {5 - n / 10} : new best\n"
        f"[2019-01-01 00:0{n}:00] [valid] Ep. 1 : Up. {n}00 : translation : {n}.5 : new best\n"
        for n in range(1, 6)
    )
    record = read(tmp_path, plain)
    assert list(record.eval_loss.values) == pytest.approx([4.9, 4.8, 4.7, 4.6, 4.5])
    assert len(record.train_loss) == 0
    assert any("per sentence" in problem for problem in record.problems)
    assert record.bleu.values[-1] == 5.5


def test_cross_entropy_where_there_is_nothing_else(tmp_path: Path) -> None:
    text = "[2019-01-01 00:00:00] [valid] Ep. 1 : Up. 100 : cross-entropy : 120.5 : new best\n"
    record = read(tmp_path, text)
    assert list(record.eval_loss.values) == [120.5]
    assert (record.loss_unit, record.tokens_per_loss_value) == ("nats per sentence", 25)


def test_words_of_a_sentence_where_the_log_tells(tmp_path: Path) -> None:
    text = "".join(line for line in PROGRESS.splitlines(keepends=True) if "perplexity" not in line)
    record = read(tmp_path, text)
    assert record.loss_unit == "nats per sentence"
    assert record.tokens_per_loss_value == pytest.approx(1600 * 50 / 6400)
    assert list(record.train_loss.values) == [words * 12.5 for words in (6.5, 6.0, 5.5, 5.25)]
    assert any("per sentence" in problem for problem in record.problems)
    per_word = read(tmp_path, PROGRESS)
    assert (per_word.loss_unit, per_word.tokens_per_loss_value) == ("nats per token", 1)


def test_a_continued_run_has_two_sessions(tmp_path: Path) -> None:
    again = (SETTINGS + PROGRESS).replace("05:0", "09:0").replace("Up. ", "Up. 1")
    record = read(tmp_path, SETTINGS + PROGRESS + again)
    assert [(session.first_step, session.last_step) for session in record.sessions] == [(100, 400), (1100, 1400)]
    assert len(record.train_loss) == 8
    assert 300 not in record.step_seconds.at


def test_a_crash_and_not_one_that_it_survived(tmp_path: Path) -> None:
    fault = "[2022-03-04 05:06:00] Error: CUDA error 2 'out of memory' - somewhere\n"
    assert read(tmp_path, SETTINGS + fault + PROGRESS).state == "unknown"
    record = read(tmp_path, SETTINGS + PROGRESS + fault)
    assert record.state == "crashed"
    assert "--workspace" in (record.failure or "")


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_log_cut_anywhere_says_nothing_wrong(tmp_path: Path, cut: int) -> None:
    record = read(tmp_path, (SETTINGS + PROGRESS)[:-cut])
    assert set(record.bleu.values) <= {3.25, 7.5}
    assert set(record.bleu.at) <= {200, 400}


def test_of_two_runs_in_a_log_the_longer_is_read(tmp_path: Path) -> None:
    other = SETTINGS.replace("9000", "500") + PROGRESS[: PROGRESS.index("[2022-03-04 05:03:00]")].replace(
        "Cost 6", "Cost 9"
    )
    for text in (SETTINGS + PROGRESS + other, other + SETTINGS + PROGRESS):
        record = read(tmp_path, text)
        assert list(record.train_loss.values) == [6.5, 6.0, 5.5, 5.25]
        assert (record.max_steps, len(record.sessions), record.repeated_steps) == (9000, 1, 0)
        (problem,) = record.problems
        assert "2 runs from scratch" in problem
        assert "not those up to step 200" in problem


def test_a_resume_from_a_checkpoint_is_one_run(tmp_path: Path) -> None:
    rest = PROGRESS[PROGRESS.index("[2022-03-04 05:03:00]") :]
    record = read(tmp_path, SETTINGS + PROGRESS + SETTINGS + rest)
    assert list(record.train_loss.at) == [100, 200, 300, 400]
    assert len(record.sessions) == 2
    assert record.problems == ()
