"""The eleven questions, answered for runs whose answers are known."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.monitor.records import Ended, Noticed, Record, Returned
from tandem.reporting.answers import Answer, Report
from tandem.reporting.examine_run import examine
from tandem.reporting.formats.tandem_run import read_tandem_run
from tandem.reporting.run_record import Curve, HostCurves, RunRecord, Schedule, Team
from tests.reporting.journal import START, ended, evaluated, progressed, session, settings, started, write_journal

IDS = [
    "duration",
    "trained",
    "overfitting",
    "utilisation",
    "network",
    "learning_rate",
    "training_set",
    "checkpoint_files",
    "checkpoint_size",
    "step_time",
    "network_correlation",
]
Make = Callable[..., Report]


@pytest.fixture
def report(tmp_path: Path) -> Make:
    """The report of a run of so many hosts whose steps spend so much on each other."""

    def make(hosts: int = 1, communication: float = 0.0, waiting: float = 0.0, price: float | None = None) -> Report:
        run = settings(tmp_path / f"run-{hosts}-{communication}-{waiting}")
        names = [f"vm{number}" for number in range(1, hosts + 1)]
        write_journal(run, [*session(0, 400, names, communication, waiting), ended(400)])
        return examine(read_tandem_run(run), price)

    return make


def answer(report: Report, id: str) -> Answer:
    return next(found for found in report.questions if found.id == id)


def verdicts(report: Report) -> dict[str, str]:
    return {found.id: found.verdict for found in report.questions}


def bare(**values: Any) -> RunRecord:
    return RunRecord(**{"source": "a log", "path": "x.log", "state": "unknown", **values})


def test_eleven_questions_in_their_order_and_four_lines(report: Make) -> None:
    found = report()
    assert [question.id for question in found.questions] == IDS
    assert len(found.summary) == 4
    assert all(question.answer.endswith(".") and question.explanation for question in found.questions)
    printed = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert list(printed["questions"][0]) == [
        "id",
        "question",
        "verdict",
        "confidence",
        "answer",
        "evidence",
        "explanation",
    ]


def test_what_is_not_finite_is_still_json() -> None:
    broken = examine(bare(eval_loss=Curve.of([(1, 3.0), (2, float("nan"))]), train_loss=Curve.of([(1, float("inf"))])))
    printed = json.loads(json.dumps(broken.as_dict(), allow_nan=False))
    assert printed["questions"][1]["verdict"] == "diverged"
    assert printed["questions"][1]["evidence"]["last_eval_loss"] is None


def test_of_nothing_nothing_is_claimed() -> None:
    found = examine(bare())
    assert verdicts(found) == {
        **dict.fromkeys(IDS, "unknown"),
        "trained": "too_short",
    }
    assert {question.confidence for question in found.questions} <= {"none", "high"}
    assert "The data has no clock" in found.summary[2]


def test_one_host_has_no_network(report: Make) -> None:
    found = verdicts(report())
    assert (found["network"], found["network_correlation"]) == ("not_bottleneck", "no_network")
    assert (found["utilisation"], found["step_time"], found["learning_rate"]) == (
        "fully_used",
        "steady",
        "as_configured",
    )


@pytest.mark.parametrize(
    ("communication", "waiting", "verdict", "confidence", "utilisation"),
    [
        (0.05, 0.0, "not_bottleneck", "high", "fully_used"),
        (0.15, 0.05, "not_bottleneck", "medium", "under_used"),
        (0.25, 0.0, "bottleneck", "medium", "under_used"),
        (0.9, 0.0, "bottleneck", "high", "under_used"),
        (0.05, 0.6, "not_bottleneck", "high", "under_used"),
    ],
)
def test_the_exposed_share_decides(
    report: Make, communication: float, waiting: float, verdict: str, confidence: str, utilisation: str
) -> None:
    found = report(hosts=2, communication=communication, waiting=waiting)
    network = answer(found, "network")
    assert (network.verdict, network.confidence) == (verdict, confidence)
    assert network.evidence["exposed_share"] == pytest.approx(communication)
    assert network.evidence["waiting_seconds_per_step"] == pytest.approx(waiting)
    assert answer(found, "utilisation").verdict == utilisation
    # A link ten times as fast takes nine tenths off the exchange, one ten times as slow makes ten of it.
    assert network.evidence["step_with_10_times_faster_link_seconds"] == pytest.approx(1 - 0.9 * communication)
    assert network.evidence["step_with_10_times_slower_link_seconds"] == pytest.approx(1 + 9 * communication)
    # 4.1 MB during the exposed part of a second.
    assert network.evidence["exchange_rate_mbit_per_second"] == pytest.approx(8 * 4.1 / communication)


def test_waiting_is_not_blamed_on_the_network(report: Make) -> None:
    found = report(hosts=2, communication=0.05, waiting=0.6)
    assert "waiting for a slower process took more (60%)" in answer(found, "network").answer
    assert "most of the rest was waiting" in answer(found, "utilisation").answer


def test_wall_training_evaluation_and_cost(report: Make) -> None:
    evidence = answer(report(hosts=2, communication=0.1, price=3.6), "duration").evidence
    assert evidence["training_seconds"] == pytest.approx(400)
    assert evidence["evaluation_seconds"] == pytest.approx(1)
    # Two machines at 3.60 an hour are 0.2 cents a second.
    assert evidence["cost_dollars"] == pytest.approx(evidence["wall_seconds"] * 0.002)
    assert (evidence["interruptions"], evidence["planned_steps"]) == (0, 400)


def test_who_came_and_went_and_what_it_cost(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    both, one = ["vm1", "vm2"], ["vm1"]
    stopped = Ended(step=200, reason="stopped on request", best_bleu=None, best_step=None, seconds={}, signal="SIGTERM")
    silences = [Returned(step=300, rank=1, host="vm2", seconds=seconds, message="back") for seconds in (20, 25)]
    ends: tuple[list[Record], ...] = ([], [stopped], [*silences])
    for (first, last, hosts, minutes), end in zip(
        ((0, 100, both, 0), (60, 200, one, 10), (200, 400, both, 20)), ends, strict=True
    ):
        write_journal(run, [*session(first, last, hosts), *end], start=START + timedelta(minutes=minutes))
    found = answer(examine(read_tandem_run(run)), "duration")
    assert found.evidence["interruptions"] == 2
    assert found.evidence["host_changes"] == ["without vm2 from step 61 on", "with vm2 from step 201 on"]
    # From the last record of a session to the start record of the next, which comes right before its first step.
    lost = found.evidence["idle_seconds"] + found.evidence["startup_seconds"] * 2 / 3
    assert found.evidence["lost_seconds"] == pytest.approx(lost)
    assert "interrupted 2 times (ended without a word, stopped by SIGTERM), which cost " in found.answer
    assert "; no sign of life from rank 1 on vm2 for 45 s" in found.answer
    said = (
        " until the next step and 40 steps that were taken again; without vm2 from step 61 on; with vm2 from step 201"
    )
    assert said in found.answer


def test_a_journal_that_begins_in_mid_run_answers_for_its_part_alone(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(100, 400), ended(400)])
    found = examine(read_tandem_run(run), 3.6)
    took = answer(found, "duration")
    assert took.answer.startswith("The run finished; steps 101 to 400 took ")
    assert "; what came before is not in this journal" in took.answer
    assert took.confidence == "medium"
    assert took.evidence["steps_not_in_the_data"] == 100
    assert "$" not in json.dumps(found.as_dict())
    assert not any("dollars" in name for question in found.questions for name in question.evidence)


def test_a_finished_run_that_was_brought_back_holds_none_of_its_training(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    idle = {"compute": 0.0, "communication": 0.0, "other": 0.002}
    write_journal(run, [started(400), dataclasses.replace(ended(400), seconds=idle)])
    found = examine(read_tandem_run(run), 3.6)
    took = answer(found, "duration")
    assert took.answer == "The run finished; the journal holds none of the training: it begins after step 400."
    assert (took.verdict, took.confidence) == ("unknown", "none")
    assert "none of the training" in answer(found, "utilisation").answer
    assert "none of the training" in found.summary[2]
    assert "bring back the journals" in found.summary[3]
    assert "of the training time" not in json.dumps(found.as_dict())


def test_the_forecast_has_an_interval_hours_and_cost(report: Make) -> None:
    found = answer(report(price=3.6), "trained")
    low, high = found.evidence["bleu_at_twice_the_steps_interval"]
    assert low < found.evidence["bleu_at_twice_the_steps"] < high
    assert found.verdict == "improving"
    assert found.evidence["twice_the_steps_cost_dollars"] > 0
    assert "at twice the steps expect BLEU" in found.answer


def test_a_learning_rate_that_is_not_the_promised_one() -> None:
    steps = np.arange(1.0, 101.0)
    schedule = Schedule(explanation="flat at 1e-3", rate=lambda step: 1e-3)
    flat = bare(learning_rate=Curve(steps, np.full(100, 1e-3)), schedule=schedule)
    assert answer(examine(flat), "learning_rate").verdict == "as_configured"
    off = dataclasses.replace(flat, learning_rate=Curve(steps, np.where(steps > 90, 2e-3, 1e-3)))
    found = answer(examine(off), "learning_rate")
    assert found.verdict == "not_as_configured"
    assert "10 of 100 logged values differ" in found.answer
    assert answer(examine(dataclasses.replace(off, schedule=None)), "learning_rate").verdict == "logged_only"
    promised = dataclasses.replace(flat, learning_rate=Curve.of([]))
    assert answer(examine(promised), "learning_rate").verdict == "explained"


def test_a_bleu_of_some_sentences_says_so(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    first = dataclasses.replace(evaluated(50), sentences=100, all_sentences=1014)
    write_journal(run, [started(), progressed(50), first])
    found = examine(read_tandem_run(run))
    assert f"best BLEU {first.bleu:.2f} (first 100 sentences) at step 50" in found.summary[1]
    assert answer(found, "trained").evidence["last_bleu_is_of_first_sentences"] == 100
    write_journal(run, [progressed(100), evaluated(100)])
    found = examine(read_tandem_run(run))
    assert "(first 100 sentences)" not in found.summary[1]
    assert "last_bleu_is_of_first_sentences" not in answer(found, "trained").evidence


def test_rates_from_before_a_changed_setting_are_not_held_against_it(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    changed = Noticed(step=200, message="changed setting: schedule.peak was 1, now 2")
    write_journal(run, [*session(0, 200), *session(200, 400), changed, ended(400)])
    record = read_tandem_run(run)
    doubled = np.where(record.learning_rate.at <= 200, 2.0, 1.0) * record.learning_rate.values
    record = dataclasses.replace(record, learning_rate=Curve(record.learning_rate.at, doubled))
    assert answer(examine(record), "learning_rate").verdict == "as_configured"
    assert answer(examine(dataclasses.replace(record, events=())), "learning_rate").verdict == "not_as_configured"


def test_outliers_are_listed_with_their_cause() -> None:
    steps = np.arange(1.0, 101.0) * 10
    usual = 1 + 0.01 * np.sin(steps)
    slow = np.where(steps == 500, 6.0, usual)
    parts = {"compute": Curve(steps, np.full(100, 0.9)), "data": Curve(steps, slow - 0.9)}
    found = answer(examine(bare(step_seconds=Curve(steps, slow), parts=parts)), "step_time")
    assert found.evidence["outliers"] == [{"step": 500.0, "seconds": 6.0, "cause": "data"}]
    assert found.evidence["median_seconds"] == pytest.approx(1, abs=0.02)
    assert "mostly data" in found.answer


V100 = {"device": "Tesla V100-PCIE-16GB", "precision": "mixed", "most_positions_per_rank": 256 * 56}


def ring_run(step_seconds: float, **team: Any) -> RunRecord:
    """Four ranks that sum 60.88 million float32 gradients in a ring: 365 MB through each card."""
    default = {"ranks": 4, "parameters": 60_880_896, "gradient_bytes_per_value": 4.0, "exchange": "allreduce"}
    points = Curve.of((100.0 * number, step_seconds) for number in range(1, 20))
    return bare(step_seconds=points, team=Team(**{**default, **team}))


def test_a_rate_that_fills_a_known_link_is_a_bottleneck() -> None:
    found = answer(examine(ring_run(34.9, hosts=2, **V100)), "network")
    assert (found.verdict, found.confidence) == ("bottleneck", "high")
    assert found.evidence["ring_floor_bytes_per_step"] == pytest.approx(365.3e6, rel=1e-3)
    assert found.evidence["mean_rate_mbit_per_second"] == pytest.approx(83.7, rel=1e-2)
    assert "a link of 100 Mbit/s" in found.answer


@pytest.mark.parametrize(
    ("step_seconds", "team", "verdict", "confidence"),
    [
        (1.7, {**V100, "hosts": 2}, "bottleneck", "medium"),
        (1.7, V100, "bottleneck", "low"),
        # The rate of a link of 100 Mbit/s: no exchange inside a machine is that slow.
        (34.9, V100, "bottleneck", "high"),
        (34.9, {"hosts": 2}, "bottleneck", "medium"),
        (34.9, {}, "unknown", "none"),
        # As slow as a link of 1 Gbit/s, but the device is slower.
        (3.5, {**V100, "device": "Tesla K80", "precision": "float32", "hosts": 2}, "unknown", "none"),
        # What was counted is less than the longest sentences would be.
        (0.5, {**V100, "tokens_per_step": 60_000.0, "hosts": 2}, "bottleneck", "medium"),
        (0.78, V100, "bottleneck", "low"),
        (0.5, V100, "unknown", "none"),
        (1.7, {}, "unknown", "none"),
        (1.7, {**V100, "ranks": 1}, "not_bottleneck", "medium"),
        (1.7, {**V100, "hosts": 1}, "not_bottleneck", "medium"),
        (1.7, {**V100, "parameters": None}, "unknown", "none"),
    ],
)
def test_what_compute_cannot_explain(step_seconds: float, team: dict[str, Any], verdict: str, confidence: str) -> None:
    found = answer(examine(ring_run(step_seconds, **team)), "network")
    assert (found.verdict, found.confidence) == (verdict, confidence)


def test_a_gpu_that_is_busy_but_cool_is_not_used() -> None:
    steps = np.arange(1.0, 11.0)
    curves = {"gpu_utilisation": Curve(steps, np.ones(10)), "gpu_power": Curve(steps, np.full(10, 0.17))}
    run = bare(hosts=(HostCurves(name="vm1", curves=curves),), seconds={"compute": 9.0, "communication": 1.0})
    found = answer(examine(run), "utilisation")
    assert found.verdict == "under_used"
    assert "100.0 % utilised and drew 17.0 % of their power cap" in found.answer


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"state": "crashed", "failure": "out of memory"}, "Mend what stopped it"),
        ({"not_finite": True}, "lower learning rate"),
        ({}, "Let it run longer"),
        ({"eval_loss": Curve.of((step, 2 + 4 / step**0.5) for step in range(1, 40))}, "Let it run on"),
        ({"eval_loss": Curve.of((step, 8.5) for step in range(1, 40))}, "Look at the training and evaluation data"),
    ],
)
def test_the_last_line_says_what_to_do(values: dict[str, Any], advice: str) -> None:
    assert advice in examine(bare(**values)).summary[3]


def test_a_slower_link_brings_to_light_what_was_hidden(report: Make) -> None:
    # Two per cent of a second exposed for 4 MB on a card of 1 Gbit/s, which needs 32 ms for them.
    evidence = answer(report(hosts=2, communication=0.02), "network").evidence
    assert evidence["ring_floor_at_card_speed_seconds"] == pytest.approx(0.032)
    assert evidence["step_with_10_times_slower_link_seconds"] == pytest.approx(max(1.18, 0.32))
    assert "exchange_rate_mbit_per_second" not in evidence


def test_standstill_is_not_paid_for_twice(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 200)])
    write_journal(run, [*session(200, 400), ended(400)], start=START + timedelta(days=3))
    found = examine(read_tandem_run(run), 1.0)
    assert answer(found, "duration").evidence["idle_seconds"] > 2 * 86_400
    assert answer(found, "trained").evidence["twice_the_steps_seconds"] < 600


def test_charts_of_what_there_is(report: Make) -> None:
    drawn = {chart.id: chart for chart in report(hosts=2, communication=0.3).charts}
    assert list(drawn) == ["loss", "bleu", "learning_rate", "parts", "step_time", "network", "cpu", "disk"]
    assert drawn["parts"].stacked
    assert [trace.name for trace in drawn["network"].traces] == [
        "vm1 sent",
        "vm1 received",
        "vm2 sent",
        "vm2 received",
    ]
    assert examine(bare()).charts == ()
