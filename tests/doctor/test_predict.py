"""Predictions from made-up costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandem.cluster.exchange.choose_strategy import Link, StepCosts
from tandem.cluster.exchange.strategy import ExchangePlan
from tandem.config import Config
from tandem.doctor.predict import MBIT, PlannedRun, other_links, over_link, predictions, with_second_host

# 61 M values: 244 MB of float32.
SHAPES = [(61_000_000,)]
# What a base model on two hosts with a port of 100 Mbit/s would measure; four bits leave the link idle at times.
CAPPED = StepCosts(
    link=Link(100 * MBIT, 0.0),
    sum_seconds={"allreduce": 19.5, "bf16": 12.0, "int4": 4.5, "powersgd": 0.5},
    together_seconds=1.5,
    apart_seconds=1.4,
    backward_seconds=0.0,
    buckets=(1.0,),
    may_keep_state=True,
)
CODING = {"bf16": 0.1, "int4": 0.5}


def task(*overrides: str, hosts: int = 2, price: float | None = None) -> PlannedRun:
    return PlannedRun(Config.load("transformer-base", ["train.max_steps=36000", *overrides]), hosts, SHAPES, price)


def costs(*overrides: str) -> StepCosts:
    return replace(CAPPED, settings=task(*overrides).config.exchange)


def test_every_way_and_the_one_that_the_settings_lead_to() -> None:
    found = {prediction.exchange: prediction for prediction in predictions(task(price=2.0), CAPPED)}
    assert list(found) == [
        "allreduce",
        "bf16",
        "int4",
        *(f"diloco with {steps} local steps" for steps in (16, 32, 64, 128)),
        "powersgd",
    ]
    assert found["allreduce"].step_seconds == pytest.approx(21.0)
    assert found["allreduce"].slow_down == pytest.approx(14.0)
    assert found["allreduce"].hours == pytest.approx(210)
    # Two machines at two an hour each.
    assert found["allreduce"].cost == pytest.approx(840)
    assert [name for name, prediction in found.items() if prediction.chosen] == ["diloco with 32 local steps"]


@pytest.mark.parametrize(
    ("overrides", "hosts", "expected"),
    [
        (["exchange.kind=allreduce"], 2, "allreduce"),
        (["exchange.kind=powersgd"], 2, "powersgd"),
        (["exchange.kind=diloco", "exchange.local_steps=8"], 2, "diloco with 8 local steps"),
        # Inside one host nothing is worth saving.
        (["exchange.kind=int4"], 1, "allreduce"),
    ],
)
def test_what_the_user_wants_is_what_is_predicted(overrides: list[str], hosts: int, expected: str) -> None:
    chosen = [each.exchange for each in predictions(task(*overrides, hosts=hosts), costs(*overrides)) if each.chosen]
    assert chosen == [expected]


def test_the_start_of_local_steps_is_taken_together() -> None:
    plan = ExchangePlan("diloco", 16)
    together, apart = 1.5 + 4.5, 1.4 + 4.5 / 16
    assert task().hours(CAPPED, plan) == pytest.approx((8_000 * together + 28_000 * apart) / 3600)
    assert task("exchange.start_steps=0").hours(CAPPED, plan) == pytest.approx(10 * apart)
    assert task("exchange.start_steps=50000").hours(CAPPED, plan) == pytest.approx(10 * together)


def test_another_rate_changes_all_but_the_coding() -> None:
    faster = over_link(CAPPED, CODING, 1_000 * MBIT)
    assert faster.sum_seconds["allreduce"] == pytest.approx(1.95)
    assert faster.sum_seconds["int4"] == pytest.approx(0.5 + 0.4)
    assert over_link(faster, CODING, 100 * MBIT).sum_seconds == pytest.approx(dict(CAPPED.sum_seconds))


def test_other_links_come_slowest_first_with_what_auto_would_take() -> None:
    links = list(other_links(task(), CAPPED, CODING, [10_000, 100, 1_000]))
    assert [link.mbit for link in links] == [100, 1_000, 10_000]
    assert [link.auto for link in links] == ["diloco with 32 local steps", "diloco with 16 local steps", "allreduce"]
    assert links[0].allreduce_step_seconds == pytest.approx(21.0)
    assert links[1].allreduce_step_seconds == pytest.approx(3.45)


def test_a_second_host_halves_what_is_not_the_update() -> None:
    alone = replace(CAPPED, together_seconds=3.0, apart_seconds=3.0)
    second = over_link(with_second_host(task(), alone, 0.2), {}, 1_000 * MBIT)
    assert second.together_seconds == pytest.approx(1.6)
    # Each of two hosts sends as much as the gradient has: 1952 Mbit.
    assert second.sum_seconds["allreduce"] == pytest.approx(1.952)


def test_float16_remembers_nothing() -> None:
    forgetful = replace(CAPPED, may_keep_state=False, sum_seconds={"allreduce": 19.5, "bf16": 12.0, "int4": 4.5})
    config = Config.load("transformer-base", ["train.precision=float16"])
    found = predictions(PlannedRun(config, 2, SHAPES, None), forgetful)
    assert [each.exchange for each in found] == ["allreduce", "bf16"]
