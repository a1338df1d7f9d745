"""The clock, driven by hand: the parts always make the whole."""

from __future__ import annotations

import time
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem.monitor.step_clock import STEP_PARTS, Exposure, StepClock, StepPart

CPU = torch.device("cpu")


class Hands:
    """Stands in for `time.perf_counter`: shows what it is set to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(time, "perf_counter", hands)
    return hands


def test_every_second_belongs_to_a_part(hands: Hands) -> None:
    clock = StepClock(CPU)
    hands.wait(1)
    with clock.measure("data"):
        hands.wait(2)
    hands.wait(4)
    with clock.measure("compute"):
        hands.wait(8)
    with clock.measure("data"):
        hands.wait(16)
    lap = clock.lap()
    assert lap == dict.fromkeys(STEP_PARTS, 0.0) | {"data": 18, "compute": 8, "other": 5}
    assert sum(lap.values()) == 31


def test_laps_follow_each_other_without_gaps(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(3)
    first = clock.lap()
    hands.wait(2)
    with clock.measure("checkpoint"):
        hands.wait(5)
    second = clock.lap()
    assert (first["compute"], first["other"]) == (3, 0)
    assert (second["compute"], second["checkpoint"], second["other"]) == (0, 5, 2)
    assert sum(first.values()) + sum(second.values()) == 10
    assert sum(clock.lap().values()) == 0


def test_an_exchange_inside_a_block_is_taken_out_of_it(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(16)
    # Ready after 5 seconds, all others after 8, done at the end of the block.
    clock.exchanged(Exposure(1005.0, 1008.0, 1016.0), inside="compute")
    lap = clock.lap()
    assert (lap["compute"], lap["waiting"], lap["communication"], lap["other"]) == (5, 3, 8, 0)
    assert sum(lap.values()) == 16


def test_an_exchange_outside_of_blocks_was_nobodys(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("optimizer"):
        hands.wait(2)
    hands.wait(14)
    clock.exchanged(Exposure(1003.0, 1004.0, 1016.0))
    lap = clock.lap()
    assert (lap["optimizer"], lap["waiting"], lap["communication"], lap["other"]) == (2, 1, 12, 1)
    assert sum(lap.values()) == 16


def test_nothing_exchanged_changes_nothing(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(2)
    clock.exchanged(None, inside="compute")
    assert clock.lap() == dict.fromkeys(STEP_PARTS, 0.0) | {"compute": 2, "other": 0}


def test_without_anybody_looking_all_of_an_exchange_is_communication(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(8)
    clock.exchanged(Exposure(1002.0, None, 1008.0), inside="compute")
    lap = clock.lap()
    assert (lap["compute"], lap["waiting"], lap["communication"]) == (2, 0, 6)


def test_where_nobody_looked_waiting_is_the_mean_of_where_somebody_did(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(100)
    for exposure in (
        Exposure(1000.0, None, 1010.0),  # long enough for the mean
        Exposure(1010.0, 1012.0, 1020.0),
        Exposure(1020.0, 1026.0, 1030.0),
        Exposure(1030.0, None, 1031.0),  # too short for it
    ):
        clock.exchanged(exposure, inside="compute")
    lap = clock.lap()
    assert lap["waiting"] == 4 + 2 + 6 + 1
    assert lap["communication"] == 6 + 8 + 4 + 0
    assert lap["compute"] == 100 - 31


def test_what_was_seen_lasts_until_somebody_looks_again(hands: Hands) -> None:
    clock = StepClock(CPU)
    clock.exchanged(Exposure(1000.0, 1003.0, 1004.0))
    hands.wait(4)
    assert clock.lap()["waiting"] == 3
    clock.exchanged(Exposure(1004.0, None, 1014.0))
    hands.wait(10)
    second = clock.lap()
    # Three quarters of the exchange that was looked at were waiting, so that is said of a longer one, too.
    assert (second["waiting"], second["communication"], second["other"]) == (7.5, 2.5, 0)
    clock.exchanged(Exposure(1014.0, 1014.0, 1015.0))
    clock.exchanged(Exposure(1015.0, None, 1016.0))
    hands.wait(2)
    third = clock.lap()
    assert (third["waiting"], third["communication"], third["other"]) == (0, 2, 0)


def test_a_block_that_fails_is_charged_too(hands: Hands) -> None:
    clock = StepClock(CPU)

    def fail() -> None:
        with clock.measure("evaluation"):
            hands.wait(7)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert clock.lap()["evaluation"] == 7


EXCHANGES = ("exchange inside", "exchange outside", "unsampled exchange")
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([*STEP_PARTS, *EXCHANGES, "nothing", "sleep", "silence", "return", "lap"]),
        st.integers(0, 2**20),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=40,
)


@given(EVENTS)
def test_whatever_happens_the_parts_make_the_whole(events: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        hands = Hands()
        patch.setattr(time, "perf_counter", hands)
        clock, start, laps = StepClock(CPU), hands.now, []
        for what, eighths, share in events:
            seconds = eighths / 8  # sums of such numbers are exact, and so are shares of them in eighths
            begin, met = hands.now, hands.now + seconds * share / 8
            if what == "lap":
                laps.append(clock.lap())
            elif what == "nothing":
                hands.wait(seconds)
            elif what == "exchange inside":
                with clock.measure("compute"):
                    hands.wait(2 * seconds)
                clock.exchanged(Exposure(begin, met, begin + seconds), inside="compute")
            elif what == "exchange outside":
                hands.wait(seconds)
                clock.exchanged(Exposure(begin, met, hands.now))
            elif what == "unsampled exchange":
                with clock.measure("compute"):
                    hands.wait(seconds)
                clock.exchanged(Exposure(begin, None, hands.now), inside="compute")
            elif what == "sleep":
                # It ends in the midst of an exchange, and began there or before.
                with clock.measure("compute"):
                    hands.wait(2 * seconds)
                    clock.slept(seconds * share / 4)
                    hands.wait(seconds)
                clock.exchanged(Exposure(begin + seconds, met + seconds, hands.now), inside="compute")
            elif what == "silence":
                clock.peer_silent(share, seconds)
            elif what == "return":
                clock.peer_returned(share)
            else:
                with clock.measure(cast(StepPart, what)):
                    hands.wait(seconds)
        laps.append(clock.lap())
        # A mean of waits may be no exact number.
        assert sum(sum(lap.values()) for lap in laps) == pytest.approx(hands.now - start, rel=1e-12, abs=1e-9)
        for lap in laps:
            assert set(lap) == {*STEP_PARTS, "other"}
            assert all(seconds >= -1e-6 for seconds in lap.values())


def test_an_exchange_with_a_silent_peer_is_a_wait_for_it() -> None:
    clock = StepClock(torch.device("cpu"))
    # Hours, beside which the time that this takes is nothing.
    present = time.perf_counter()
    # The peer fell silent before the exchange began, and goes on in the middle of it.
    clock.peer_silent(1, seconds=5000.0)
    clock.peer_returned(1)
    clock.exchanged(Exposure(present - 4000.0, None, present + 4000.0))
    seconds = clock.lap()
    assert seconds["waiting"] == pytest.approx(4000.0, abs=100.0)
    assert seconds["communication"] == pytest.approx(4000.0, abs=100.0)
    # In the next lap nobody is silent any more; one that lasts is remembered.
    clock.exchanged(Exposure(present, None, present + 4000.0))
    assert clock.lap()["communication"] == pytest.approx(4000.0, abs=100.0)
    clock.peer_silent(2, seconds=0.0)
    clock.lap()
    clock.exchanged(Exposure(present + 5000.0, None, present + 6000.0))
    assert clock.lap()["waiting"] == pytest.approx(1000.0)


def test_what_no_part_claims_while_a_peer_is_silent_is_a_wait_for_it(hands: Hands) -> None:
    clock = StepClock(CPU)
    hands.wait(10)
    clock.peer_silent(1, seconds=6)
    hands.wait(20)
    clock.peer_returned(1)
    hands.wait(3)
    seconds = clock.lap()
    assert (seconds["waiting"], seconds["other"]) == (26, 7)


def test_what_a_block_or_an_exchange_has_waited_for_a_silent_peer_is_not_waited_again(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("waiting"):
        hands.wait(20)
        clock.peer_silent(1, seconds=20)
    with clock.measure("compute"):
        hands.wait(8)
    clock.exchanged(Exposure(1022.0, None, 1028.0), inside="compute")
    hands.wait(4)
    clock.exchanged(Exposure(1028.0, None, 1032.0))
    clock.peer_returned(1)
    hands.wait(5)
    seconds = clock.lap()
    assert (seconds["waiting"], seconds["compute"], seconds["other"]) == (20 + 6 + 4, 2, 5)


def test_a_process_that_is_stopped_waits_for_nobody(hands: Hands) -> None:
    clock = StepClock(CPU)
    hands.wait(40)
    clock.slept(30)
    clock.peer_silent(1, seconds=35)
    clock.peer_returned(1)
    seconds = clock.lap()
    assert (seconds["waiting"], seconds["other"]) == (5, 35)


def test_a_time_in_which_this_process_was_stopped_is_no_work(hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(40)
        clock.slept(30)
    seconds = clock.lap()
    assert (seconds["compute"], seconds["other"]) == (10, 30)
    with clock.measure("compute"):
        hands.wait(5)
    assert clock.lap()["compute"] == 5


@pytest.mark.parametrize("met", [1060.5, None])
def test_a_stop_in_the_midst_of_an_exchange_is_taken_out_once(met: float | None, hands: Hands) -> None:
    clock = StepClock(CPU)
    with clock.measure("compute"):
        hands.wait(60.5)
        clock.slept(60)
        hands.wait(0.5)
    clock.exchanged(Exposure(1000.25, met, 1060.75), inside="compute")
    seconds = clock.lap()
    waited = 0 if met is None else 0.25
    assert (seconds["compute"], seconds["other"]) == (0.5, 60)
    assert (seconds["waiting"], seconds["communication"]) == (waited, 0.5 - waited)
