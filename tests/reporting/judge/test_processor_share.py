"""Processors that other programs or guests had are told apart from the run's own use of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tandem.monitor.records import Record, Sampled
from tandem.reporting.answers import Answer, Report
from tandem.reporting.examine_run import examine
from tandem.reporting.formats.tandem_run import read_tandem_run
from tandem.reporting.judge.processor_share import judge_processors
from tandem.reporting.judge.step_times import summarise_steps
from tandem.reporting.run_record import Curve, HostCurves, RunRecord
from tests.reporting.journal import EVERY, ended, progressed, settings, started, use, write_journal


def report(directory: Path, own: float, disturbed: range = range(0), steal: float = 0.0) -> Report:
    """A run on two busy cores, of which it has `own` in the disturbed steps, and a step takes as much longer."""
    records: list[Record] = [started()]
    for step in range(EVERY, 601, EVERY):
        share = own if step in disturbed else 0.98
        seen = dataclasses.replace(use("vm1"), cpu=0.98, cpu_own=share, cpu_steal=steal if step in disturbed else 0.0)
        slow = progressed(step, step_seconds=0.46 * 0.98 / share)
        records += [Sampled(step=step, use=seen), dataclasses.replace(slow, seconds={"compute": EVERY * 0.46 / share})]
    run = settings(directory / "run")
    write_journal(run, [*records, ended(600)])
    return examine(read_tandem_run(run))


def answer(found: Report, id: str) -> Answer:
    return next(one for one in found.questions if one.id == id)


def test_a_run_beside_other_programs_is_not_called_fully_used(tmp_path: Path) -> None:
    found = report(tmp_path, own=0.5, disturbed=range(210, 421))
    used = answer(found, "utilisation")
    assert used.verdict == "shared"
    said = "other programs took 48.0 % of the processors from step 201 to 420; undisturbed a step takes 0.46 s"
    assert said in used.answer
    assert said in found.summary[2]
    assert said in answer(found, "step_time").answer
    assert "machines of its own" in found.summary[3]
    assert used.evidence["cpu_of_other_programs_share"] == pytest.approx(0.48 * 22 / 60)
    assert used.evidence["cpu_taken_by_hypervisor_share"] == 0
    assert used.evidence["undisturbed_step_seconds"] == pytest.approx(0.46)


def test_the_hypervisor_is_not_blamed_on_other_programs(tmp_path: Path) -> None:
    used = answer(report(tmp_path, own=0.5, disturbed=range(210, 421), steal=0.45), "utilisation")
    assert "other guests of the hypervisor took 48.0 % of the processors from step 201 to 420" in used.answer
    assert used.evidence["cpu_taken_by_hypervisor_share"] == pytest.approx(0.45 * 22 / 60)


def test_an_undisturbed_run_is_fully_used(tmp_path: Path) -> None:
    used = answer(report(tmp_path, own=0.5), "utilisation")
    assert used.verdict == "fully_used"
    assert used.evidence["cpu_of_this_run_share"] == pytest.approx(0.98)
    assert "other programs" not in used.answer


def test_a_moment_is_named_as_the_cause_of_its_long_steps_alone(tmp_path: Path) -> None:
    found = report(tmp_path, own=0.5, disturbed=range(300, 311))
    assert answer(found, "utilisation").verdict == "fully_used"
    assert {outlier["cause"] for outlier in answer(found, "step_time").evidence["outliers"]} == {"other programs"}


@pytest.mark.parametrize(
    ("grown", "cause"), [("compute", "other programs"), ("communication", "communication"), ("data", "data")]
)
def test_a_long_step_beside_other_programs_is_blamed_on_them_only_if_it_computed_for_longer(
    grown: str, cause: str
) -> None:
    """A process that waits for the network is not held up by whoever has its processors meanwhile."""
    steps = np.arange(10.0, 310.0, 10.0)
    long = steps == 200
    others = Curve(steps, np.where(long, 0.5, 0.0))
    host = HostCurves(name="vm1", curves={"cpu_own": Curve(steps, 0.9 - others.values), "cpu_others": others})
    seconds = {"compute": 0.9, "communication": 0.05, "data": 0.05}
    parts = {part: Curve(steps, usual + np.where(long & (part == grown), 2.0, 0.0)) for part, usual in seconds.items()}
    times = Curve(steps, np.sum([curve.values for curve in parts.values()], axis=0))
    run = RunRecord(source="x", path="x", state="unknown", hosts=(host,), step_seconds=times, parts=parts)
    facts = summarise_steps(run, judge_processors(run))
    assert facts is not None
    assert [(outlier.step, outlier.cause) for outlier in facts.outliers] == [(200.0, cause)]


def test_each_host_is_judged_by_itself() -> None:
    steps = np.arange(1.0, 101.0)
    own, others = np.full(100, 0.5), np.where((steps > 40) & (steps <= 60), 0.4, 0.0)
    hosts = (
        HostCurves(name="vm1", curves={"cpu_own": Curve(steps, own), "cpu_others": Curve(steps, 0 * others)}),
        HostCurves(name="vm2", curves={"cpu_own": Curve(steps, own), "cpu_others": Curve(steps, others)}),
    )
    run = RunRecord(
        source="x", path="x", state="unknown", hosts=hosts, step_seconds=Curve(steps[9::10], 1 + others[9::10])
    )
    facts = judge_processors(run)
    assert facts is not None
    words = "other programs took 40.0 % of the processors of vm2 from step 41 to 60; undisturbed a step takes 1 s"
    assert facts.words == words
    assert facts.steal_share is None
    assert judge_processors(dataclasses.replace(run, hosts=())) is None
