"""The clock, driven by hand: the parts always make the whole."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.monitor.clock import PARTS, Clock


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
    clock = Clock()
    hands.wait(1)
    with clock.measure("data"):
        hands.wait(2)
    hands.wait(4)
    with clock.measure("compute"):
        hands.wait(8)
    with clock.measure("data"):
        hands.wait(16)
    lap = clock.lap()
    assert lap == {**dict.fromkeys(PARTS, 0.0), "data": 18, "compute": 8, "other": 5}
    assert sum(lap.values()) == 31


def test_laps_follow_each_other_without_gaps(hands: Hands) -> None:
    clock = Clock()
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


def test_move_charges_one_part_to_another(hands: Hands) -> None:
    clock = Clock()
    with clock.measure("compute"):
        hands.wait(8)
    clock.move(3, "compute", "communication")
    lap = clock.lap()
    assert (lap["compute"], lap["communication"], lap["other"]) == (5, 3, 0)
    assert sum(lap.values()) == 8


def test_a_block_that_fails_is_charged_too(hands: Hands) -> None:
    clock = Clock()

    def fail() -> None:
        with clock.measure("evaluation"):
            hands.wait(7)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert clock.lap()["evaluation"] == 7


EVENTS = st.lists(
    st.tuples(st.sampled_from([*PARTS, "nothing", "move", "lap"]), st.integers(0, 2**20)), min_size=1, max_size=40
)


@settings(deadline=None, derandomize=True)
@given(EVENTS)
def test_whatever_happens_the_parts_make_the_whole(events: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        hands = Hands()
        patch.setattr(time, "perf_counter", hands)
        clock, start, laps = Clock(), hands.now, []
        for what, eighths in events:
            seconds = eighths / 8  # sums of such numbers are exact
            if what == "lap":
                laps.append(clock.lap())
            elif what == "move":
                clock.move(seconds, "compute", "communication")
            elif what == "nothing":
                hands.wait(seconds)
            else:
                with clock.measure(what):  # type: ignore[arg-type]
                    hands.wait(seconds)
        laps.append(clock.lap())
        assert sum(sum(lap.values()) for lap in laps) == hands.now - start
        for lap in laps:
            assert set(lap) == {*PARTS, "other"}
            assert lap["other"] >= 0
