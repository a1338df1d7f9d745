"""What the records of a run add up to for somebody who watches it, damaged ones among them."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tandem.monitor.journal_reader import UnreadableRecordError, read_record
from tandem.monitor.records import (
    Ended,
    Evaluated,
    GpuUse,
    HostSummary,
    HostUse,
    Noticed,
    Planned,
    Progressed,
    Record,
    Returned,
    RolledBack,
    Sampled,
    Saved,
    Silent,
    Started,
    Surveyed,
)
from tandem.monitor.watch.panels import RunScreen, _best_step, _measures
from tandem.monitor.watch.run_state import RunState
from tests.monitor.example_records import example

BEGAN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
SECONDS = {"data": 0.5, "compute": 10.0, "communication": 6.0, "waiting": 2.0, "optimizer": 1.0, "other": 0.5}


def started(step: int = 0, rank: int = 0, hosts: tuple[str, ...] = ("vm1", "vm2")) -> Started:
    return example(
        Started, step=step, rank=rank, max_steps=1000, hosts=list(hosts), world_size=2, parameters=61_400_000,
        device="cuda", precision="bfloat16",
    )  # fmt: skip


def progressed(step: int, loss: float = 3.0, **values: Any) -> Progressed:
    usual = {"max_steps": 1000, "steps": 10, "learning_rate": 1.5e-3, "seconds_left": 600.0, "seconds": SECONDS}
    usual |= {"tokens_per_second": 12345.0, "step_seconds": 1.83}
    return example(Progressed, step=step, train_loss=loss, **usual | values)


def evaluated(step: int, bleu: float, loss: float = 2.5) -> Evaluated:
    return example(Evaluated, step=step, split="dev", bleu=bleu, eval_loss=loss, perplexity=12.2, seconds=9.9)


def sampled(step: int, host: str = "vm1", gpus: int = 0, sent: float = 94.0) -> Sampled:
    card = {"memory_used_bytes": 12, "memory_total_bytes": 16, "watts": 150.0, "watts_cap": 300.0}
    cards = [example(GpuUse, utilisation=1.0, **card)] * gpus
    memory = {"memory_used_bytes": 31, "memory_total_bytes": 100}
    traffic = {"link_mbit_per_second": 100, "sent_mbit_per_second": sent, "received_mbit_per_second": 40.0}
    return Sampled(step=step, use=example(HostUse, host=host, cpu=0.85, gpus=cards, **memory, **traffic))


def surveyed(step: int, *hosts: str) -> Surveyed:
    use = {"cpu": 0.42, "sent_mbit_per_second": 88.0, "received_mbit_per_second": 16.0, "gpu_count": 0}
    return Surveyed(step=step, hosts=[example(HostSummary, host=host, **use) for host in hosts])


def content(record: Record, second: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(BEGAN + second, UTC).isoformat(timespec="milliseconds")
    return {"time": moment, **record.as_dict()}


def line(record: Record, second: float, **changes: Any) -> bytes:
    return json.dumps(content(record, second) | changes).encode()


def state_of(*told: tuple[float, Record], rank: int = 0) -> RunState:
    """What these records of a rank, each written at some second, add up to."""
    state = RunState()
    for second, record in told:
        state.add_line(rank, line(record, second))
    return state


def drawn(
    state: RunState, second: float, width: int = 80, height: int = 24, every: int | None = None, **console: Any
) -> list[str]:
    """The picture at some second, fitted to a screen."""
    output = StringIO()
    screen = Console(file=output, width=width, height=height, **console)
    screen.print(RunScreen("runs/wmt", state, BEGAN + second, every, fitted=True))
    return output.getvalue().removesuffix("\n").split("\n")


def headline(state: RunState, second: float, every: int | None = None) -> str:
    return drawn(state, second, every=every)[0].removeprefix("runs/wmt").strip()


@pytest.mark.parametrize(
    ("told", "second", "expected"),
    [
        ([], 5, "waiting for the first record"),
        ([(0, started())], 5, "starting"),
        ([(0, started()), (1, sampled(1))], 5, "starting"),
        ([(0, started()), (1, sampled(2))], 5, "training"),
        ([(0, started())], 61, "no sign of life for 61 s"),
        ([(0, started()), (9, progressed(10))], 12, "training"),
        ([(0, started()), (9, progressed(10)), (12, sampled(11))], 20, "training"),
        ([(0, started()), (9, progressed(10)), (12, sampled(11))], 57, "no sign of life for 45 s"),
        ([(0, started()), (9, progressed(10)), (12, sampled(11))], 3624, "no sign of life for 1:00:12"),
        # Without samples, stretches of 20 s allow for a minute.
        ([(0, started()), (9, progressed(10))], 68, "training"),
        ([(0, started()), (9, progressed(10, seconds={"compute": 100.0}))], 300, "training"),
        ([(0, started()), (9, progressed(10)), (9, example(Saved, step=10))], 12, "training, saved step 10"),
        (
            [(0, started()), (9, progressed(10)), (9, example(Ended, reason="finished"))],
            999,
            "ended: finished",
        ),
        ([(0, Noticed(step=0, message="before the start")), (1, started())], 2, "starting"),
    ],
)
def test_the_state_in_a_few_words(told: list[tuple[float, Record]], second: float, expected: str) -> None:
    assert headline(state_of(*told), second) == expected


def test_an_evaluation_is_seen_while_it_lasts() -> None:
    told: list[tuple[float, Record]] = [(0, started()), (9, progressed(10)), (19, progressed(20))]
    assert headline(state_of(*told), 20, every=15) == "evaluating"
    assert headline(state_of(*told), 20, every=25) == "training"
    assert headline(state_of(*told), 20) == "training", "nobody knows"
    told.append((22, evaluated(20, 5.0)))
    assert headline(state_of(*told), 23, every=20) == "training"
    told.append((39, progressed(40)))
    assert headline(state_of(*told), 40) == "evaluating", "as after step 20"
    assert headline(state_of((0, started()), (9, progressed(1000))), 10) == "evaluating", "as at every end"


def test_an_evaluation_between_two_log_lines_is_over_by_the_second() -> None:
    state = state_of((0, started()), (9, progressed(10)), (15, evaluated(15, 5.0)), (19, progressed(20)))
    assert headline(state, 20, every=15) == "training"


def test_a_run_that_is_continued() -> None:
    """The newest session counts for the time; the curves go on where it took them up."""
    state = state_of(
        (0, started()), (10, progressed(10, 9.0)), (20, progressed(20, 8.0)), (20, evaluated(20, 11.0)),
        (30, progressed(30, 7.0)), (40, progressed(40, 6.0)), (40, evaluated(40, 22.0)),
        (1000, Noticed(step=20, message="continuing after step 20")), (1000, started(step=20)),
        (1010, progressed(30, 7.5, seconds_left=300.0)),
    )  # fmt: skip
    assert list(state.losses) == [(10, 9.0), (20, 8.0), (30, 7.5)]
    assert [one.step for one in state.evaluations] == [20]
    assert "step 30 of 1,000   3.0%   0:00:20 in session 2   0:04:50 left" in drawn(state, 1020)[2]


def test_who_came_and_went_and_what_it_cost() -> None:
    both, one = ("vm1", "vm2"), ("vm1",)
    state = state_of(
        (0, started(hosts=both)), (10, progressed(30)), (34, Noticed(step=20, message="a damaged checkpoint")),
        (40, started(step=20, hosts=one)), (50, progressed(40)), (55, started(step=40, hosts=both)),
    )  # fmt: skip
    assert [message.message for message in state.messages] == [
        "a damaged checkpoint",
        "started again, without vm2, after 30 s of standstill and 10 steps to take again",
        "started again, with vm2, after 5.0 s of standstill",
    ]


def test_what_is_dead_has_no_time_left() -> None:
    told: list[tuple[float, Record]] = [(0, started()), (9, progressed(10)), (10, sampled(11))]
    assert "0:00:12 so far   0:09:57 left" in drawn(state_of(*told), 12)[2]
    assert "0:00:10 so far   epoch" in drawn(state_of(*told), 100)[2]
    told.append((11, example(Ended, step=10)))
    assert "0:00:11 so far   epoch" in drawn(state_of(*told), 100)[2]


@pytest.mark.parametrize("end", [[], [(11, example(Ended, step=10, reason="finished"))]])
def test_the_sample_of_a_run_that_is_over_has_its_age(end: list[tuple[float, Record]]) -> None:
    state = state_of((0, started()), (9, progressed(10)), (10, sampled(11)), *end)
    (row,) = (row for row in drawn(state, 611) if row.startswith("vm1"))
    assert row.endswith(" 0:10:01 ago")


def test_all_processes_of_a_session_are_one_session() -> None:
    state = RunState()
    for rank in (1, 0):
        state.add_line(rank, line(started(rank=rank), rank / 10))
        state.add_line(rank, line(Noticed(step=0, message="said by all"), 1 + rank / 10))
    for step in (10, 20):
        for rank in (1, 0):
            state.add_line(rank, line(progressed(step, 9.0 - step, seconds={"compute": 1.0 + rank}), step))
    assert state.sessions == 1
    assert list(state.losses) == [(10, -1.0), (20, -11.0)]
    assert [note.message for note in state.messages] == ["said by all"]
    assert state.session is not None
    assert state.session.progressed is not None
    assert state.session.progressed.seconds == {"compute": 1.0}, "of the lowest rank"


def test_a_host_that_has_other_ranks_after_a_restart() -> None:
    state = state_of((0, started()), (10, progressed(10)))
    for second, record in ((500, started(step=10, rank=3)), (510, progressed(20, 2.0)), (511, sampled(21, "vm9"))):
        state.add_line(3, line(record, second))
    assert state.sessions == 2
    assert state.losses[-1] == (20, 2.0)
    # What is left of the old session does not speak for the new one.
    state.add_line(0, line(example(Ended, step=10, reason="failed: long ago"), 512))
    assert headline(state, 513) == "training"


def test_the_lowest_rank_says_why_it_ended() -> None:
    state = RunState()
    for rank in (0, 1):
        state.add_line(rank, line(started(rank=rank), 0))
    state.add_line(1, line(example(Ended, step=5, reason="failed: lost the connection"), 9))
    assert headline(state, 10) == "ended: failed: lost the connection"
    state.add_line(0, line(example(Ended, step=5, reason="failed: no space left"), 9))
    assert headline(state, 10) == "ended: failed: no space left"


def test_who_is_silent_and_since_when() -> None:
    silent = example(Silent, step=10, ranks=[1], host="vm2", cause="stopped", phase="compute", seconds=11.0)
    state = state_of((0, started()), (10, progressed(10)), (30, silent), (31, sampled(11)))
    assert headline(state, 31) == "rank 1 on vm2 silent for 12 s, in compute"
    # Samples of those who wait go on; the clock that counts is theirs.
    state.add_line(0, line(sampled(11), 200))
    assert headline(state, 200) == "rank 1 on vm2 silent for 0:03:01, in compute"
    assert "left" not in " ".join(drawn(state, 200))
    state.add_line(0, line(example(Returned, step=10, rank=1, host="vm2", seconds=181.0), 201))
    state.add_line(0, line(progressed(20), 202))
    assert headline(state, 202) == "training"
    assert "left" in " ".join(drawn(state, 202))


def test_a_host_whose_samples_stay_away() -> None:
    """Without a word of anybody else: its journal is here, and ends."""
    state = state_of((0, started()), (10, progressed(10)), (10, sampled(11, "vm1")), (10, sampled(11, "vm2")))
    state.add_line(0, line(sampled(11, "vm1"), 40))
    assert headline(state, 40) == "vm2 silent for 30 s"


def test_steps_that_do_not_come() -> None:
    """Somebody is alive, and nobody has written down who is not."""
    state = state_of((0, started()), (20, progressed(10)), (25, sampled(11)), (79, sampled(11)))
    assert headline(state, 79) == "training"
    state.add_line(0, line(sampled(11), 100))
    assert headline(state, 100) == "no step for 80 s"
    assert "left" not in " ".join(drawn(state, 100))


def test_the_newest_of_every_host() -> None:
    state = state_of(
        (0, started()), (9, sampled(9, "vm1", sent=90.0)), (10, surveyed(10, "vm1", "vm2")),
        (11, sampled(12, "vm1", sent=70.0)),
    )  # fmt: skip
    assert {name: (host.sampled, host.summary.sent_mbit_per_second) for name, host in state.hosts.items()} == {
        "vm1": (True, 70.0),
        "vm2": (False, 88.0),
    }
    assert state.session is not None
    assert state.session.step == 11, "step 12 is under way, and samples are ahead of the log"


@pytest.mark.parametrize(
    "strange",
    [{"time": "never", "kind": "started"}, {"kind": "saved"}, {"time": "2026-01-01", "kind": "sung"},
     {"time": "2026-01-01T00:00:00+00:00", "kind": "started", "step": 0},
     {"time": "2026-01-01T00:00:00+00:00", "kind": "sampled", "step": 0, "use": None},
     {"time": 5, "kind": ["started"]}],
)  # fmt: skip
def test_what_another_version_wrote_is_passed_over(strange: dict[str, Any]) -> None:
    state = RunState()
    state.add_line(0, json.dumps(strange).encode())
    assert headline(state, 5) == "its journals are of another version of Tandem"
    for second, record in ((0, started()), (9, progressed(10))):
        state.add_line(0, line(record, second))
    assert headline(state, 10) == "training"


def test_a_run_that_went_back_forgets_the_steps_it_takes_again() -> None:
    back = RolledBack(step=20, to_step=10, reason="step 20: it blew up", skipped_from=12, skipped_steps=100)
    told = [(0, started()), (9, progressed(10)), (18, progressed(20)), (19, back)]
    state = state_of(*told)
    assert headline(state, 20) == "training again from step 10, after it blew up"
    assert [step for step, _ in state.losses] == [10]
    assert state.session is not None
    assert state.session.step == 10
    said = "step 20: it blew up; went back to step 10 and skipped the data of 100 steps from step 12 on"
    assert [message.message for message in state.messages] == [said]
    assert headline(state_of(*told, (28, progressed(20))), 29) == "training"


def test_hosts_are_known_between_surveys_and_without_any() -> None:
    """Every log line of a minute, but few surveys, which only the first process of a host writes down."""
    state = RunState()
    for rank in (0, 1):
        state.add_line(rank, line(started(rank=rank), 0))
    state.add_line(1, line(surveyed(5, "vm1", "vm2"), 5))
    for step in range(1, 60):
        state.add_line(0, line(progressed(step, steps=1), step))
    assert headline(state, 60) == "training"
    rows = [row.split() for row in drawn(state, 17) if row.startswith("vm")]
    assert [(row[0], " ".join(row[-3:])) for row in rows] == [("vm1", "12 s ago"), ("vm2", "12 s ago")]
    unsurveyed = state_of((0, started()), (9, progressed(10)))
    assert not any("Mbit/s" in row for row in drawn(unsurveyed, 10))
    assert headline(unsurveyed, 10) == "training"


def test_the_last_seconds_of_a_session_are_not_those_of_the_next() -> None:
    """Where only the newest sample and survey of a journal are told, they come after all other lines of it."""
    state = state_of(
        (0, started()), (90, progressed(90)), (100, started(step=50)),
        (95, sampled(96, "vm1")), (95, surveyed(90, "vm1", "vm2")),
    )  # fmt: skip
    assert state.session is not None
    assert (state.session.step, state.session.sampled, state.hosts) == (50, False, {})
    assert headline(state, 101) == "starting"


# --- damaged records


def one_of_each() -> list[Record]:
    return [
        started(), example(Planned, step=0), Noticed(step=0, message="a note"), progressed(10), surveyed(10, "vm1"),
        evaluated(10, 20.0), example(Saved, step=10), sampled(12, gpus=2), progressed(20, math.nan),
        evaluated(20, 21.0), example(Silent, step=20, ranks=[1]), example(Returned, step=20),
        example(RolledBack, step=20, to_step=20),
        example(Ended, step=20, best_bleu=21.0, best_step=20),
    ]  # fmt: skip


def test_what_is_whole_is_read_as_it_was_written() -> None:
    assert {type(record) for record in one_of_each()} == set(Record.__subclasses__())
    for record in one_of_each():
        read = read_record(line(record, 5))
        assert read is not None
        assert (read.timestamp, repr(read)) == (BEGAN + 5, repr(record))


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (started(), "hosts", None), (started(), "hosts", ["vm1", 2]), (started(), "max_steps", 10**30),
        (progressed(10), "step", "10"), (progressed(10), "step", True), (progressed(10), "steps", 1.5),
        (progressed(10), "train_loss", None), (progressed(10), "seconds_left", math.inf),
        (progressed(10), "seconds", []), (progressed(10), "seconds", {"compute": math.nan}),
        (surveyed(10, "vm1"), "hosts", [None]), (surveyed(10, "vm1"), "hosts", {}), (evaluated(10, 5.0), "bleu", "5"),
        (Noticed(step=0, message=""), "message", 5), (Noticed(step=0, message=""), "time", None),
        (Noticed(step=0, message=""), "time", "9999-12-31T23:59:59-23:00"),
    ],
)  # fmt: skip
def test_a_record_of_other_types_is_passed_over(record: Record, field: str, value: Any) -> None:
    state = state_of((0, started()))
    state.add_line(0, line(record, 5, **{field: value}))
    assert state.unreadable == 1
    assert headline(state, 6) == "starting"


NEW_FIELDS = ("card", "card_memory_bytes", "batch_tokens", "micro_batches", "compiled", "deterministic")


def test_journals_from_before_there_were_such_fields_are_read() -> None:
    def check(record: Record, names: Sequence[str], *place: str | int) -> None:
        old = content(record, 5)
        within: Any = old
        for key in place:
            within = within[key]
        for name in names:
            del within[name]
        assert read_record(json.dumps(old).encode()) == record

    check(started(), NEW_FIELDS)
    check(sampled(12, gpus=1), ("uuid", "index"), "use", "gpus", 0)
    check(surveyed(10, "vm1"), ("gpu_utilisation_least", "gpu_utilisation_most"), "hosts", 0)


def test_a_field_that_has_another_name_now_is_read() -> None:
    record = dataclasses.replace(started(), parallel_micro_batches=4)
    old = content(record, 5)
    old["lanes"] = old.pop("parallel_micro_batches")
    assert read_record(json.dumps(old).encode()) == record


@pytest.mark.parametrize(
    ("field", "value"),
    [("card", 4), ("card_memory_bytes", "80 GB"), ("micro_batches", 1.5), ("compiled", 1), ("deterministic", 1)],
)
def test_a_start_with_a_damaged_field_is_passed_over(field: str, value: Any) -> None:
    with pytest.raises(UnreadableRecordError):
        read_record(line(started(), 5, **{field: value}))


def test_the_card_is_named_where_it_is_known() -> None:
    named = example(Started, device="cuda", card="NVIDIA L4", world_size=2, precision="bfloat16", parameters=61_400_000)
    fact = "61.4 M parameters, bfloat16, 2 processes on 1 host, 2 x NVIDIA L4"
    assert fact in drawn(state_of((0, named)), 1, height=40)
    assert drawn(state_of((0, started())), 1, height=40)[1].endswith("2 processes on 2 hosts, cuda")


def test_cards_that_are_not_equally_busy() -> None:
    shares = (1.0, 0.5, 0.9, None)
    sample = sampled(2, gpus=len(shares))
    gpus = [
        dataclasses.replace(gpu, index=index, uuid=f"GPU-{index}", utilisation=share)
        for index, (gpu, share) in enumerate(zip(sample.use.gpus, shares, strict=True))
    ]
    state = state_of((0, started()), (1, Sampled(step=2, use=dataclasses.replace(sample.use, gpus=gpus))))
    wide, narrow = ("\n".join(drawn(state, 2, width=width)) for width in (120, 80))
    assert "4 x 80%  50%-100%" in wide
    assert "min-max" in wide
    assert "4 x 80%" in narrow
    assert "min-max" not in narrow, "there is no room for it"


@pytest.mark.parametrize("field", ["seconds", "memory_total_bytes"])
def test_a_sample_that_has_no_shares_is_passed_over(field: str) -> None:
    damaged = content(sampled(12), 5)
    damaged["use"][field] = 0
    with pytest.raises(UnreadableRecordError):
        read_record(json.dumps(damaged).encode())


def test_numbers_that_lost_or_gained_a_point_when_they_were_rounded() -> None:
    rounded = content(sampled(12), 5)
    rounded["use"] |= {"cpu": 1, "memory_used_bytes": 31.0, "link_mbit_per_second": 100.0}
    state = state_of((0, started()))
    state.add_line(0, json.dumps(rounded).encode())
    assert any(row.startswith("vm1") and "100%  31%" in row for row in drawn(state, 6))


DAMAGE: tuple[Any, ...] = (
    None, True, 0, -1, 7, 10**400, 1.5, -1e308, 1e308, 5e-324, math.nan, math.inf, "", "text", "\x1b[2J\n\ud800",
    [], [None], {}, {"compute": None}, {"compute": 1e308},
    "2026-01-01", "0001-01-01T00:00:00", "9999-12-31T23:59:59+00:00",
)  # fmt: skip


def damage(dice: random.Random, whole: dict[str, Any]) -> None:
    """Take something out of a record, or put something else in its place, at any depth."""
    within: Any = whole
    while True:
        key = dice.choice(list(within) if isinstance(within, dict) else range(len(within)))
        if not (isinstance(within[key], dict | list) and within[key] and dice.random() < 0.8):
            break
        within = within[key]
    if dice.random() < 0.2:
        del within[key]
    else:
        within[key] = deepcopy(dice.choice(DAMAGE))


@pytest.mark.parametrize("seed", range(8))
def test_no_damage_ends_the_view(seed: int) -> None:
    """Fifty journals for each seed, with one to three faults each."""
    dice = random.Random(seed)
    for _ in range(50):
        lines = [content(record, second) for second, record in enumerate(one_of_each()[: dice.randint(2, 11)])]
        faults = dice.choices(range(len(lines)), k=dice.randint(1, 3))
        for index in faults:
            if lines[index]:
                damage(dice, lines[index])
        state = RunState()
        for told in lines:
            state.add_line(0, json.dumps(told).encode())
        height = dice.choice((24, 40))
        shown = drawn(state, 12, height=height, every=dice.choice((None, 10)))
        assert len(shown) <= height, lines


def test_evaluations_are_kept_by_dev_set_and_the_best_by_what_counts() -> None:
    state = RunState()
    records: list[Record] = [dataclasses.replace(started(), best_by="news/loss")]
    for step, loss in ((10, 2.0), (20, 1.5), (30, 1.8)):
        records.append(evaluated(step, step / 10))
        records.append(dataclasses.replace(evaluated(step, 1.0, loss), split="news"))
    for second, record in enumerate(records):
        line = json.dumps({"time": f"2026-01-01T00:00:{second:02}+00:00", **record.as_dict()})
        state.add_line(0, line.encode())
    assert [one.step for one in state.evaluations] == [10, 20, 30]
    assert [one.step for one in state.evaluated["news"]] == [10, 20, 30]
    assert state.session is not None
    labels = [measure.label for measure in _measures(state.session, state)]
    assert labels == ["dev loss", "dev BLEU", "news BLEU", "news loss"]
    assert _best_step(state.session, state) == 20
