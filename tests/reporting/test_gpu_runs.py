"""Reports of runs on GPUs: what they ran on, how the cards differ, and what became of too little memory."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.monitor.records import GpuUse, Noticed, Record, Sampled, Started
from tandem.reporting.answers import Answer
from tandem.reporting.examine_run import examine
from tandem.reporting.formats.tandem_run import read_tandem_run
from tandem.reporting.run_record import RunRecord
from tests.reporting.journal import ended, gpu, session, settings, started, use, write_journal

A100 = "NVIDIA A100-SXM4-80GB"
NEW_FIELDS = ("card", "card_memory_bytes", "batch_tokens", "micro_batches", "compiled", "deterministic")
FULL = "step 120: the GPU of rank 3 on vm2 has too little memory"
SPLIT = f"{FULL} for batch.tokens=8192; from here on each micro-batch is worked through in 2 parts (or smaller)"


def on_gpus(start: Started, **values: Any) -> Started:
    usual = {
        "device": "cuda",
        "world_size": 4,
        "precision": "bfloat16",
        "card": A100,
        "card_memory_bytes": 80_000_000_000,
        "batch_tokens": 8192,
        "micro_batches": 4,
        "compiled": True,
        "deterministic": False,
    }
    return dataclasses.replace(start, **{**usual, **values})


def gpu_session(first: int, last: int, gpus: list[GpuUse], **values: Any) -> list[Record]:
    """The records of one session on a host with these cards, without its end."""
    records: list[Record] = []
    for record in session(first, last):
        match record:
            case Started():
                records.append(on_gpus(record, **values))
            case Sampled():
                records.append(Sampled(step=record.step, use=use("vm1", gpus=gpus)))
            case _:
                records.append(record)
    return records


def written(run: Path, *records: Record) -> RunRecord:
    write_journal(settings(run), records)
    return read_tandem_run(run)


def rewritten(run: Path, change: Callable[[dict[str, Any]], None]) -> RunRecord:
    """The run after a change of its first record, which is that of the start."""
    journal = run / "journal/rank-0.jsonl"
    first, *others = journal.read_text().splitlines()
    start = json.loads(first)
    change(start)
    journal.write_text("\n".join([json.dumps(start), *others]) + "\n")
    return read_tandem_run(run)


def answers(run: RunRecord) -> dict[str, Answer]:
    return {answer.id: answer for answer in examine(run).questions}


# --- what it ran on


def test_the_report_says_what_a_run_computed_on(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *gpu_session(0, 100, [gpu(1), gpu(3)]), ended(100))
    assert (run.team.device, run.team.cards, run.problems) == (A100, (A100,), ())
    found = answers(run)["utilisation"]
    assert f"it ran on 4 x {A100} in bfloat16 with compiled layers, not deterministic." in found.answer
    printed = json.loads(json.dumps(examine(run).as_dict(), allow_nan=False))
    evidence = {question["id"]: question["evidence"] for question in printed["questions"]}
    facts = evidence["utilisation"]
    assert (facts["device"], facts["cards"], facts["card_memory_bytes"]) == (A100, [A100], 80_000_000_000)
    assert (facts["precision"], facts["compiled"], facts["deterministic"]) == ("bfloat16", True, False)
    assert (evidence["step_time"]["micro_batches"], evidence["step_time"]["micro_batch_tokens"]) == (4, 8192)
    assert "a step is 4 micro-batches of at most 8,192 tokens on either side" in answers(run)["step_time"].answer


def test_one_card_and_cards_of_several_kinds(tmp_path: Path) -> None:
    values = {"world_size": 1, "compiled": False, "deterministic": True}
    alone = written(tmp_path / "alone", *gpu_session(0, 50, [gpu(0)], **values), ended(50))
    expected = f"it ran on {A100} in bfloat16 without compiling, deterministic."
    assert answers(alone)["utilisation"].answer.endswith(expected)
    mixed = written(tmp_path / "mixed", *gpu_session(0, 50, [gpu(0)], world_size=2), ended(50))
    write_journal(tmp_path / "mixed", [on_gpus(started(0), world_size=2, card="Tesla T4")], rank=1)
    mixed = read_tandem_run(tmp_path / "mixed")
    assert mixed.team.cards == (A100, "Tesla T4")
    assert f"it ran on {A100} and Tesla T4 in bfloat16" in answers(mixed)["utilisation"].answer


@pytest.mark.parametrize(
    ("deterministic", "expected"), [(True, "ends with the same bits"), (False, "but not bit for bit the same steps")]
)
def test_a_checkpoint_says_what_going_on_from_it_gives(tmp_path: Path, deterministic: bool, expected: str) -> None:
    checkpoint = tmp_path / "run/checkpoints/step-00000050"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(10))
    run = written(tmp_path / "run", *gpu_session(0, 50, [gpu(0)], deterministic=deterministic), ended(50))
    assert expected in answers(run)["checkpoint_files"].answer


def test_one_session_that_was_not_deterministic_counts_for_the_run(tmp_path: Path) -> None:
    first, second = (gpu_session(*steps, [gpu(0)], deterministic=steps[0] > 0) for steps in ((0, 50), (50, 100)))
    assert written(tmp_path / "run", *first, *second, ended(100)).team.deterministic is False


def test_a_run_on_a_processor_reads_as_before(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *session(0, 100), ended(100))
    assert (run.team.device, run.team.cards, run.team.deterministic) == ("cpu", (), True)
    found = answers(run)
    assert found["utilisation"].answer == "100.0 % of the training time went into compute, the optimizer included."
    assert found["utilisation"].evidence["deterministic"] is True
    assert "micro" not in found["step_time"].answer


@pytest.mark.parametrize(("device", "deterministic"), [("cpu", True), ("cuda", None)])
def test_journals_from_before_there_were_such_fields(tmp_path: Path, device: str, deterministic: bool | None) -> None:
    written(tmp_path / "run", *gpu_session(0, 50, [], device=device), ended(50))

    def drop(start: dict[str, Any]) -> None:
        for name in NEW_FIELDS:
            del start[name]

    run = rewritten(tmp_path / "run", drop)
    assert (run.problems, run.team.device, run.team.cards) == ((), device, ())
    assert (run.team.compiled, run.team.deterministic, run.team.batch_tokens) == (False, deterministic, None)
    assert "deterministic" not in answers(run)["utilisation"].answer


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("card", 4),
        ("card_memory_bytes", "80 GB"),
        ("batch_tokens", 1.5),
        ("micro_batches", -1),
        ("compiled", 1),
        ("deterministic", "yes"),
    ],
)
def test_a_start_with_a_damaged_field_is_named(tmp_path: Path, name: str, value: Any) -> None:
    written(tmp_path / "run", *gpu_session(0, 50, []), ended(50))
    run = rewritten(tmp_path / "run", lambda start: start.update({name: value}))
    assert any("1 records of rank 0 are incomplete or damaged" in problem for problem in run.problems)
    assert any("the record of the start is lost" in problem for problem in run.problems)
    assert (run.state, run.last_step) == ("finished", 50)


# --- its cards


def test_every_card_by_itself(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *gpu_session(0, 100, [gpu(1, 1.0), gpu(3, 0.5, 50.0)]), ended(100))
    (host,) = run.hosts
    assert [card.index for card in host.gpus] == [1, 3]
    assert host.curves["gpu_utilisation"].values.tolist() == [0.75] * 10
    assert host.gpus[1].curves["gpu_utilisation"].at.tolist() == list(range(10, 101, 10))
    assert host.gpus[1].curves["gpu_power"].values.tolist() == [0.2] * 10
    found = answers(run)["utilisation"]
    assert "the GPUs were 75.0 % utilised (from 50.0 %, vm1 GPU 3, to 100.0 %)" in found.answer
    assert found.evidence["by_card_gpu_utilisation_share"] == {"vm1 GPU 3": 0.5, "vm1 GPU 1": 1.0}
    assert list(found.evidence["by_card_gpu_power_share"]) == ["vm1 GPU 3", "vm1 GPU 1"]


def test_cards_that_do_alike_are_not_told_apart(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *gpu_session(0, 100, [gpu(0), gpu(1)]), ended(100))
    assert "the GPUs were 90.0 % utilised and drew 80.0 % of their power cap" in answers(run)["utilisation"].answer


def test_what_a_card_does_not_tell_is_not_counted(tmp_path: Path) -> None:
    run = written(tmp_path / "run", *gpu_session(0, 50, [gpu(0, None, None), gpu(1, 0.6)]), ended(50))
    (host,) = run.hosts
    assert run.problems == ()
    assert host.curves["gpu_utilisation"].values.tolist() == [0.6] * 5
    assert host.curves["gpu_power"].values.tolist() == [0.8] * 5
    assert set(host.gpus[0].curves) == {"gpu_memory"}


def test_cards_without_a_number_are_only_averaged(tmp_path: Path) -> None:
    unnumbered = [dataclasses.replace(gpu(place, 0.5 + place / 2), index=None, uuid=None) for place in range(2)]
    (host,) = written(tmp_path / "run", *gpu_session(0, 50, unnumbered), ended(50)).hosts
    assert host.gpus == ()
    assert host.curves["gpu_utilisation"].values.tolist() == [0.75] * 5


def test_a_resume_takes_back_the_samples_of_every_card(tmp_path: Path) -> None:
    first, second = (gpu_session(*steps, [gpu(0)]) for steps in ((0, 80), (50, 100)))
    (host,) = written(tmp_path / "run", *first, *second, ended(100)).hosts
    assert host.gpus[0].curves["gpu_memory"].at.tolist() == list(range(10, 101, 10))


@pytest.mark.parametrize("seed", range(3))
def test_any_damage_of_a_sample_ends_in_a_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    written(tmp_path / "run", *gpu_session(0, 50, [gpu(0), gpu(1)]), ended(50))
    journal = tmp_path / "run/journal/rank-0.jsonl"
    whole = [json.loads(line) for line in journal.read_text().splitlines()]
    wrong: tuple[object, ...] = (None, "x", True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), [], {}, [None])
    for _ in range(30):
        records = copy.deepcopy(whole)
        for record in records:
            if record["kind"] == "sampled":
                card = chance.choice(record["use"]["gpus"])
                card[chance.choice(list(card))] = copy.deepcopy(chance.choice(wrong))
        journal.write_text("".join(json.dumps(record) + "\n" for record in records))
        run = read_tandem_run(tmp_path / "run")
        assert all(np.all(np.diff(card.curves[name].at) >= 0) for card in run.hosts[0].gpus for name in card.curves)
        examine(run)


# --- too little memory


def test_the_end_by_too_little_memory_is_told_with_its_remedy(tmp_path: Path) -> None:
    reason = f"{FULL} (80 GB, {A100}); batch.tokens=4096 batch.micro_batches=8 makes steps of the same size"
    run = written(tmp_path / "run", *gpu_session(0, 110, [gpu(0)]), ended(119, f"failed: {reason}"))
    assert (run.state, run.failure) == ("crashed", reason)
    report = examine(run)
    assert report.questions[0].verdict == "crashed"
    assert report.questions[0].answer.startswith(f"The run crashed: {reason}; it took ")
    assert reason in report.summary[0]


def test_splits_are_told_with_the_step_time(tmp_path: Path) -> None:
    again = SPLIT.replace("120", "130").replace("2 parts", "4 parts")
    notes = [Noticed(step=119, message=SPLIT), Noticed(step=129, message=again)]
    run = written(tmp_path / "run", *gpu_session(0, 150, [gpu(0)]), *notes, ended(150))
    found = answers(run)["step_time"]
    assert (
        "a GPU had too little memory at step 120, from where on that session worked through each micro-batch in 2 "
        "parts" in found.answer
    )
    assert found.evidence["micro_batch_splits"] == [{"step": 120.0, "parts": 2}, {"step": 130.0, "parts": 4}]


def test_without_a_split_nothing_is_said_of_one(tmp_path: Path) -> None:
    huge = SPLIT.replace("120", "9" * 5000)
    notes = [Noticed(step=1, message=f"{FULL} and nothing else"), Noticed(step=1, message=huge)]
    run = written(tmp_path / "run", *gpu_session(0, 50, [gpu(0)]), *notes, ended(50))
    assert run.splits == ()
    assert "too little memory" not in answers(run)["step_time"].answer
