"""A run of our own, read back from what it left on the disk."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.monitor.network_interfaces import host_name
from tandem.monitor.records import Noticed, Returned, RolledBack, Sampled
from tandem.reporting.formats.tandem_run import read_tandem_run
from tandem.training.loop import train
from tandem.training.run_directory import Run
from tests.conftest import TINY
from tests.reporting.journal import START, ended, session, settings, started, use, write_journal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("real") / "run"
    train(Config.load("demo", TINY), tiny_corpus.directory, run, views=())
    return run


def test_a_finished_run_tells_everything(real: Path, tiny_corpus: PreparedCorpus) -> None:
    run = read_tandem_run(real)
    assert (run.source, run.state, run.problems) == ("Tandem run", "finished", ())
    assert (run.max_steps, run.last_step, len(run.sessions)) == (12, 12, 1)
    assert run.train_loss.at.tolist() == [2, 4, 6, 8, 10, 12]
    assert run.eval_loss.at.tolist() == run.bleu.at.tolist() == [6, 12]
    assert "nrefs:1" in (run.bleu_note or "")
    assert run.schedule is not None
    assert run.schedule.rate is not None
    for step, rate in zip(run.learning_rate.at, run.learning_rate.values, strict=True):
        assert rate == pytest.approx(run.schedule.rate(step))
    assert run.team.parameters == 62_080
    assert (run.team.ranks, run.team.hosts, run.team.device) == (1, 1, "cpu")
    source, target = run.texts
    facts = tiny_corpus.facts.splits["train"]
    assert (source.language, source.raw_lines, source.cleaned_bytes) == ("en", 400, facts.source.cleaned.bytes)
    assert (target.language, target.raw_bytes) == ("de", facts.target.raw.bytes)
    assert (source.tokens, target.tokens) == (facts.source.encoded.tokens, facts.target.encoded.tokens)
    assert source.files == (f"train.en (sha256 {facts.source.inputs[0].sha256[:12]})",)
    (host,) = run.hosts
    assert {"cpu", "memory", "disk_read"} <= set(host.curves)


def test_the_parts_make_the_steps(real: Path) -> None:
    run = read_tandem_run(real)
    training = sum(curve.values for part, curve in run.parts.items() if part not in ("evaluation", "checkpoint"))
    assert np.allclose(training, run.step_seconds.values, rtol=1e-6)


def test_a_checkpoint_file_by_file(real: Path) -> None:
    checkpoint = read_tandem_run(real).checkpoint
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.kept) == (12, 2)
    sizes = {file.holds: file.bytes for file in checkpoint.files}
    names = ["SHA256SUMS", "model.safetensors", "optimizer.safetensors", "state.json"]
    assert [file.name for file in checkpoint.files] == names
    assert sizes["optimizer"] == pytest.approx(2 * sizes["weights"], rel=0.1)


def test_a_corpus_that_is_gone_is_named(real: Path, tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    facts = json.loads((real / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "corpus": "/nowhere"}))
    write_journal(run, [*session(0, 100), ended(100)])
    record = read_tandem_run(run)
    assert record.texts == ()
    assert "/nowhere: no such directory" in record.problems[0]
    (run / "run.json").write_text(json.dumps({**facts, "corpus_digest": "other"}))
    assert "is not the corpus of this run any more" in read_tandem_run(run).problems[0]


def test_a_killed_run_that_was_resumed(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 150), Sampled(step=151, use=use("vm1"))])
    later = START + timedelta(hours=1)
    write_journal(run, [*session(100, 200), ended(200)], start=later)
    record = read_tandem_run(run)
    assert (record.state, record.last_step, record.repeated_steps) == ("finished", 200, 50)
    assert record.train_loss.at.tolist() == list(range(10, 201, 10))
    assert record.hosts[0].curves["cpu"].at.tolist() == list(range(10, 201, 10))
    first, second = record.sessions
    assert (first.last_step, first.reason, second.reason) == (150, "ended without a word", "finished")
    assert first.ended is not None
    assert second.started == pytest.approx(later.timestamp() - 2)
    assert record.events == ((100.0, "resumed"),)


BACK = RolledBack(step=150, to_step=100, reason="step 150: it blew up", skipped_from=120, skipped_steps=130)


def test_a_run_that_went_back_is_judged_by_the_steps_it_kept(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    _, *again = session(100, 200)
    write_journal(run, [*session(0, 150), BACK, *again, ended(200)])
    record = read_tandem_run(run)
    assert (record.state, record.last_step, record.repeated_steps, len(record.sessions)) == ("finished", 200, 50, 1)
    assert record.train_loss.at.tolist() == list(range(10, 201, 10))
    said = "step 150: it blew up; it went back to step 100 and skipped the data of 130 steps from step 120 on"
    assert record.roll_backs == (said,)
    assert record.events == ((150.0, said.replace("; it went", "; went")),)


def test_going_back_is_forgotten_with_the_steps_that_a_kill_has_lost(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    _, *again = session(100, 120)
    write_journal(run, [*session(0, 150), BACK, *again])
    write_journal(run, [*session(100, 150), BACK, *again], start=START + timedelta(hours=1))
    assert len(read_tandem_run(run).roll_backs) == 1


@pytest.mark.parametrize(
    ("reason", "state", "failure", "not_finite"),
    [
        ("finished", "finished", None, False),
        ("stopped on request", "stopped", None, False),
        ("failed: disk full.", "crashed", "disk full", False),
        (
            "failed: step 9: the gradient is not finite (nan)",
            "crashed",
            "step 9: the gradient is not finite (nan)",
            True,
        ),
        (
            "failed: step 99: the loss has exploded, from 2.00 to 7.00 nats per token since step 80; stop",
            "crashed",
            "step 99: the loss has exploded",
            True,
        ),
        (None, "crashed", "it was killed or lost its machine", False),
    ],
)
def test_ends(tmp_path: Path, reason: str | None, state: str, failure: str | None, not_finite: bool) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 50), *([ended(50, reason)] if reason else [])])
    record = read_tandem_run(run)
    assert (record.state, record.not_finite) == (state, not_finite)
    assert record.failure is None if failure is None else (record.failure or "").startswith(failure)


def test_a_run_that_was_heard_of_just_now_is_running(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 20)], start=datetime.now(UTC) - timedelta(seconds=8))
    assert read_tandem_run(run).state == "running"
    # On this very host it is known that there is no such process.
    here = settings(tmp_path / "here")
    gone = 2**22 + 1
    write_journal(here, [dataclasses.replace(started(0, [host_name()]), process=gone)], start=datetime.now(UTC))
    assert read_tandem_run(here).state == "crashed"


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 50)])
    journal = run / "journal/rank-0.jsonl"
    whole = read_tandem_run(run)
    with journal.open("ab") as file:
        file.write(
            b'\xff\xfe\n[1, 2]\n{"time": "x", "kind": "progressed"}\n{"time": "2026-01-02T00:00:59+00:00", "kind": "pr'
        )
    torn = read_tandem_run(run)
    assert torn.train_loss.values.tolist() == whole.train_loss.values.tolist()
    assert any("1 records of rank 0 are incomplete or damaged" in problem for problem in torn.problems)


def test_several_hosts_each_with_its_samples(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    hosts = ("vm1", "vm2")
    write_journal(run, [*session(0, 50, hosts, communication=0.5), ended(50)])
    alone = read_tandem_run(run)
    assert [host.name for host in alone.hosts] == ["vm1", "vm2"]
    assert any("no journal of vm2 is here" in problem for problem in alone.problems)
    assert "disk_read" not in alone.hosts[1].curves
    assert alone.hosts[1].curves["sent"].values.tolist() == [32.0] * 5
    samples = [Sampled(step=step, use=use("vm2", sent=64.0)) for step in range(1, 51)]
    write_journal(run, [started(0, hosts, host="vm2"), *samples], rank=1)
    both = read_tandem_run(run)
    assert len(both.hosts[1].curves["sent"]) == 50
    assert (both.hosts[1].interface, both.hosts[1].link_mbit_per_second) == ("eth7", 1000)
    assert not any("no journal" in problem for problem in both.problems)
    assert (both.team.hosts, both.team.exchange, both.team.gradient_bytes_per_value) == (2, "allreduce", 4.0)
    assert both.network_bytes.values.tolist() == pytest.approx([4.1e6] * 5)


def back(rank: int, host: str, seconds: float) -> Returned:
    return Returned(step=20, rank=rank, host=host, seconds=seconds, message="back")


def test_the_silence_of_a_process_is_known_from_the_others(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    hosts = ("vm1", "vm2", "vm3")
    # Rank 0 hung for 20 s, which it tells itself, and was stopped for 30 s, which the process beside it tells.
    write_journal(run, [*session(0, 50, hosts), back(0, "vm1", 20.0), back(2, "vm2", 7.0), ended(50)])
    write_journal(run, [started(0, hosts), back(0, "vm1", 30.0)], rank=1)
    write_journal(run, [started(0, hosts, host="vm2"), back(0, "vm1", 20.0), back(0, "vm1", 29.5)], rank=2)
    # Stopped itself while rank 0 hung.
    write_journal(run, [started(0, hosts, host="vm3"), back(0, "vm1", 30.0), back(2, "vm2", 7.0)], rank=3)
    told = (("rank 0 on vm1", 20.0), ("rank 0 on vm1", 30.0), ("rank 2 on vm2", 7.0))
    assert read_tandem_run(run).silences == told


def test_a_run_that_never_began(tmp_path: Path) -> None:
    record = read_tandem_run(settings(tmp_path / "run"))
    assert (record.state, record.last_step) == ("unknown", 0)
    assert "no journal" in record.problems[0]


@pytest.mark.parametrize("last", ['{"kind": "x"}', '{"kind": "noticed", "step": 60, "message": "x", "time": "soon"}'])
def test_a_last_record_without_its_moment(tmp_path: Path, last: str) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 50)])
    before = read_tandem_run(run).sessions
    with (run / "journal/rank-0.jsonl").open("a") as file:
        file.write(last + "\n")
    assert read_tandem_run(run).sessions == before


def test_a_lost_start_loses_nothing_else(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*list(session(0, 100))[1:], ended(100)])
    record = read_tandem_run(run)
    assert (record.state, record.last_step, len(record.sessions)) == ("finished", 100, 1)
    assert len(record.train_loss) == 10
    assert any("the record of the start is lost" in problem for problem in record.problems)
    write_journal(run, [started(0)], rank=1)
    assert read_tandem_run(run).team.parameters == 1_000_000


RESTORED = Noticed(step=60, message="the run was not here, and comes from its mirror, /mirror")


def test_a_notice_before_the_start_is_of_the_session_that_starts(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [RESTORED, *session(60, 100), ended(100)])
    record = read_tandem_run(run)
    assert (len(record.sessions), record.steps_before) == (1, 60)
    assert record.events == ((60.0, RESTORED.message),)
    assert told_to_begin_late(run)
    assert not any("the start is lost" in problem for problem in record.problems)


def test_a_real_run_that_came_from_its_mirror_with_nothing_left_to_do(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    run, config = tmp_path / "run", Config.load("demo", [*TINY, f"checkpoint.mirror={tmp_path / 'mirror'}"])
    train(config, tiny_corpus.directory, run, views=())
    shutil.rmtree(run)
    train(config, tiny_corpus.directory, run, views=())
    record = read_tandem_run(run)
    assert (record.state, len(record.sessions), record.steps_before) == ("finished", 1, 12)
    assert record.holds_no_step
    assert "what came before is not known" in " ".join(record.problems)
    assert "lost" not in " ".join(record.problems)


def test_a_notice_of_a_start_does_not_prolong_the_session_before(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 60)])
    (alone,) = read_tandem_run(run).sessions
    # While it started up, the trainer had not come to its step yet.
    notice = Noticed(step=0, message="a damaged checkpoint")
    write_journal(run, [notice, *session(40, 100), ended(100)], start=START + timedelta(minutes=5))
    record = read_tandem_run(run)
    first, second = record.sessions
    assert (first.last_step, first.ended) == (60, alone.ended)
    assert second.started == pytest.approx((START + timedelta(minutes=5, seconds=1)).timestamp() - 2)
    assert record.repeated_steps == 20


def test_a_checkpoint_that_was_passed_over_is_a_problem(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    said = "the checkpoint of step 60 is damaged (too short); continuing from step 40: 20 steps are taken again"
    notice = Noticed(step=0, message=said)
    write_journal(run, [*session(0, 60), ended(60, "stopped on request"), notice, *session(40, 100), ended(100)])
    record = read_tandem_run(run)
    assert (record.problems, record.repeated_steps) == ((said,), 20)


def test_a_real_checkpoint_that_was_passed_over_is_a_problem(real: Path, tmp_path: Path) -> None:
    run = shutil.copytree(real, tmp_path / "run")
    (run / "checkpoints/step-00000012/model.safetensors").write_bytes(b"")
    train(Config.load("demo", TINY), Run.open(run).corpus_directory, run, views=())
    record = read_tandem_run(run)
    (problem,) = record.problems
    assert problem.startswith("the checkpoint of step 12 is damaged (")
    first, second = record.sessions
    assert (first.last_step, first.reason, second.reason) == (12, "finished", "finished")
    assert record.repeated_steps == 12 - second.first_step > 0


def test_a_notice_from_before_the_next_start_up_is_of_the_session_before(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    last = Noticed(step=65, message="the disk is full")
    write_journal(run, [*session(0, 60), last])
    (alone,) = read_tandem_run(run).sessions
    write_journal(run, [*session(60, 100)], start=START + timedelta(minutes=5))
    record = read_tandem_run(run)
    assert (alone.last_step, record.sessions[0].ended, record.repeated_steps) == (65, alone.ended, 5)


def test_nothing_but_a_notice_is_no_session(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [RESTORED])
    record = read_tandem_run(run)
    assert (record.state, record.sessions) == ("unknown", ())
    assert any("no record of a session" in problem for problem in record.problems)


def test_nothing_but_an_end(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [ended(7)])
    assert (read_tandem_run(run).state, read_tandem_run(run).last_step) == ("finished", 7)


def test_steps_are_in_order_also_where_a_resume_is_lost(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 60), *list(session(40, 100))[1:]])
    record = read_tandem_run(run)
    assert record.train_loss.at.tolist() == list(range(10, 101, 10))
    assert np.all(np.diff(record.hosts[0].curves["cpu"].at) >= 0)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all that is in a record."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from _places(part, (*path, key))


WRONG: tuple[Any, ...] = (
    *(None, "x", "", "2026-01-02", True, -1, 0, 1.5, 10**30, 1e308, float("nan"), float("inf")),
    *([], {}, [None], {"compute": None}, [{}]),
)


def _damage(record: dict[str, Any], chance: random.Random) -> None:
    *way, last = chance.choice(list(_places(record)))
    place: Any = record
    for key in way:
        place = place[key]
    if chance.random() < 0.3:
        del place[last]
    else:
        place[last] = copy.deepcopy(chance.choice(WRONG))


@pytest.mark.parametrize("seed", range(10))
def test_any_damage_ends_in_a_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = settings(tmp_path / "run")
    hosts = ("vm1", "vm2")
    write_journal(run, [*session(0, 40, hosts, communication=0.5)])
    write_journal(run, [*session(20, 60, hosts, communication=0.5), ended(60)])
    journal = run / "journal/rank-0.jsonl"
    whole = [json.loads(line) for line in journal.read_text().splitlines()]
    for _ in range(30):
        records = copy.deepcopy(whole)
        for record in chance.sample(records, chance.choice((1, 3, len(records)))):
            _damage(record, chance)
        journal.write_text("".join(json.dumps(record) + "\n" for record in records))
        read = read_tandem_run(run)
        assert np.all(np.diff(read.train_loss.at) > 0)


def test_what_is_beside_the_checkpoints_and_what_vanishes(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(0, 20)])
    for name in ("step-00000100", "step-00000100.bak", "step-00000200", "step-new"):
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "model.safetensors").write_bytes(bytes(10))
    (run / "checkpoints/step-00000200/state.json").symlink_to(tmp_path / "gone")
    record = read_tandem_run(run)
    assert record.checkpoint is not None
    assert (record.checkpoint.step, record.checkpoint.kept, record.checkpoint.kept_bytes) == (100, 1, 10)
    assert any("step-00000200" in problem and "vanished" in problem for problem in record.problems)


def told_to_begin_late(run: Path) -> bool:
    said = "the journal of the first process begins after step 60: what came before is not known"
    return any(problem.startswith(said) for problem in read_tandem_run(run).problems)


def test_a_journal_that_begins_in_mid_run_says_so(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(60, 200), ended(200)])
    assert told_to_begin_late(run)


def test_a_host_that_joined_later_says_nothing_of_the_first_process(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*session(60, 200, ("vm1", "vm2")), ended(200)], rank=3)
    assert not told_to_begin_late(run)


def test_a_journal_whose_first_start_is_lost_does_not_begin_with_the_second(tmp_path: Path) -> None:
    run = settings(tmp_path / "run")
    write_journal(run, [*list(session(0, 60))[1:], *session(60, 200), ended(200)])
    assert not told_to_begin_late(run)
