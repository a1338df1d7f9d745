"""The choice of a strategy, as a table of links and computers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandem.cluster.exchange.choose_strategy import Link, StepCosts, StrategyChoice
from tandem.cluster.exchange.choose_strategy import choose as choose_by_costs
from tandem.cluster.exchange.gradient_reducer import bucket_shares
from tandem.cluster.exchange.strategies.diloco import MOST_LOCAL_STEPS
from tandem.cluster.exchange.strategy import HIDDEN_SLOW_DOWN, find_strategy
from tandem.cluster.exchange.strategy import ExchangePlan as Plan
from tandem.config import ExchangeConfig

MBIT = 1e6 / 8
# Two hosts and a gradient of 61 M values: 244 MB of float32, 122 MB of bfloat16, 31 MB of four bits.
TRANSFORMER_BASE = 61_000_000


def gradient_bytes(kind: str) -> int:
    return find_strategy(kind).payload_bytes(ExchangeConfig(), [(TRANSFORMER_BASE,)])


def choose(settings: ExchangeConfig, costs: StepCosts) -> StrategyChoice:
    return choose_by_costs(replace(costs, settings=settings))


def seen(
    rate: float,
    compute_seconds: float,
    *,
    latency: float = 0.0,
    coding_seconds: float = 0.0,
    keeps_state: bool = True,
) -> StepCosts:
    """Two hosts that wait for nobody, over a link that every way of summing uses in full."""
    sums = {kind: gradient_bytes(kind) / (rate * MBIT) for kind in ("allreduce", "bf16", "int4")}
    sums["int4"] += coding_seconds
    return StepCosts(
        link=Link(rate * MBIT, latency),
        sum_seconds=sums,
        together_seconds=compute_seconds,
        apart_seconds=compute_seconds,
        backward_seconds=0.0,
        buckets=(1.0,),
        may_keep_state=keeps_state,
    )


@pytest.mark.parametrize(
    ("rate", "compute_seconds", "expected"),
    [
        # An all-reduce sends 1952 Mbit: hidden if that takes a tenth of the compute.
        (100_000, 1.0, Plan("allreduce")),
        (20_000, 1.0, Plan("allreduce")),
        (19_000, 1.0, Plan("bf16")),
        (1_000, 20.0, Plan("allreduce")),
        (10_000, 1.0, Plan("bf16")),
        (9_000, 1.0, Plan("int4")),
        (1_000, 10.0, Plan("bf16")),
        (1_000, 5.0, Plan("int4")),
        (2_500, 1.0, Plan("int4")),
        # Four bits send 248 Mbit: 2.48 s at 100 Mbit/s, a sixteenth of which is 0.155 s.
        (2_400, 1.0, Plan("int4")),
        (1_000, 1.0, Plan("int4")),
        (500, 1.0, Plan("int4")),
        (490, 1.0, Plan("diloco", 16)),
        (100, 1.6, Plan("diloco", 16)),
        (100, 1.5, Plan("diloco", 32)),
        (100, 0.5, Plan("diloco", 64)),
        (100, 0.2, Plan("diloco", 128)),
    ],
)
def test_the_mildest_plan_that_stays_hidden(rate: float, compute_seconds: float, expected: Plan) -> None:
    circumstances = seen(rate, compute_seconds)
    choice = choose(ExchangeConfig(), circumstances)
    assert choice.plan == expected
    *milder, chosen = choice.slow_downs.items()
    assert chosen == (str(expected), circumstances.slow_down(expected))
    # Four bits in every step keep the quality, so they may cost more than local steps would.
    assert chosen[1] <= expected.strategy.accepted_slow_down
    assert all(slow_down > HIDDEN_SLOW_DOWN for _, slow_down in milder)


def test_where_nothing_stays_hidden_the_least_cost_counts() -> None:
    choice = choose(ExchangeConfig(), seen(10, 0.1))
    assert choice.plan == Plan("diloco", MOST_LOCAL_STEPS)
    assert min(choice.slow_downs, key=lambda name: choice.slow_downs[name]) == str(choice.plan)
    assert choice.slow_downs[str(choice.plan)] > HIDDEN_SLOW_DOWN


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(100_000, Plan("allreduce")), (10_000, Plan("bf16")), (1_000, Plan("bf16")), (10, Plan("bf16"))],
)
def test_float16_takes_nothing_that_remembers(rate: float, expected: Plan) -> None:
    choice = choose(ExchangeConfig(), seen(rate, 1.0, keeps_state=False))
    assert choice.plan == expected
    assert set(choice.slow_downs) <= {"allreduce", "bf16"}


def test_local_steps_start_where_the_user_says() -> None:
    assert choose(ExchangeConfig(local_steps=8), seen(490, 1.0)).plan == Plan("diloco", 8)
    assert choose(ExchangeConfig(local_steps=100), seen(10, 1.0)).plan == Plan("diloco", 100)


def test_four_bits_cost_their_coding() -> None:
    fast_coding, slow_coding = (seen(5_000, 1.0, coding_seconds=seconds) for seconds in (0.01, 0.5))
    assert choose(ExchangeConfig(), fast_coding).plan == Plan("int4")
    assert slow_coding.slow_down(Plan("int4")) == pytest.approx(fast_coding.slow_down(Plan("int4")) + 0.49)
    # Its coding is paid for only once a round.
    assert choose(ExchangeConfig(), slow_coding).plan == Plan("diloco", 16)


def test_latency_counts_in_every_exchange() -> None:
    assert seen(1_000, 1.0, latency=0.25).slow_down(Plan("bf16")) == pytest.approx(
        seen(1_000, 1.0).slow_down(Plan("bf16")) + 0.25
    )


def test_what_was_measured_counts_not_what_would_be_sent() -> None:
    """Sums that leave a link idle half of the time are as slow as they were seen to be."""
    at_best = seen(1_000, 2.0)
    assert choose(ExchangeConfig(), at_best).plan == Plan("int4")
    idle = replace(at_best, sum_seconds={**at_best.sum_seconds, "int4": 1.1})
    assert choose(ExchangeConfig(), idle).plan == Plan("diloco", 16)


def test_local_steps_wait_for_nobody() -> None:
    uneven = replace(seen(1_000, 1.0), apart_seconds=0.9)
    for plan, difference in [(Plan("allreduce"), 0.0), (Plan("int4"), 0.0), (Plan("diloco", 16), 0.1)]:
        assert uneven.step_seconds(plan) == pytest.approx(seen(1_000, 1.0).step_seconds(plan) - difference)


def test_changes_of_weights_travel_as_the_settings_say() -> None:
    bf16 = replace(seen(1_000, 1.0), settings=ExchangeConfig(deltas="bf16"))
    assert bf16.exchange_seconds(find_strategy("diloco")) == bf16.sum_seconds["bf16"]


@pytest.mark.parametrize(
    ("buckets", "exposed"),
    [
        # All gradients in one bucket: nothing travels before backward has ended.
        ((1.0,), 0.4),
        # Half of it is gone when backward ends, a step in eight apart, which is taken to pieces.
        ((0.5, 0.5), 0.2 + 0.2 / 8),
        # The second bucket waits for the first one.
        ((0.8, 0.2), 0.28 + 0.12 / 8),
    ],
)
def test_buckets_hide_behind_backward(buckets: tuple[float, ...], exposed: float) -> None:
    sums = {"allreduce": 0.4}
    hidden = replace(seen(1_000, 1.0), sum_seconds=sums, backward_seconds=0.6, buckets=buckets)
    assert hidden.exchange_seconds(find_strategy("allreduce")) == pytest.approx(exposed)


def test_ddp_cuts_gradients_up_as_foreseen() -> None:
    """Backward comes to the last weights first; a bucket is full once it has reached its size."""
    mega = 1 << 18
    sizes = [8 * mega, 10 * mega, 10 * mega, 10 * mega, mega // 2, mega // 2]
    shares = bucket_shares([(size,) for size in sizes])
    assert shares == pytest.approx([1 / 39, 30 / 39, 8 / 39])


@pytest.mark.parametrize(
    ("rate", "compute_seconds", "reason"),
    [
        (
            100_000,
            0.25,
            "allreduce: the hosts send each other 100,000 Mbit/s, so that allreduce makes a step of 250 ms "
            "1.08 times as long",
        ),
        (
            100,
            1.6,
            "diloco with 16 local steps: the hosts send each other 100 Mbit/s, so that allreduce makes a step of 1.6 s "
            "13.20 times as long, this 1.10 times; the first steps, taken together, take longer, "
            "and it costs some quality (docs/slow-networks.md)",
        ),
    ],
)
def test_the_reason_names_the_rate_and_the_slow_down(rate: float, compute_seconds: float, reason: str) -> None:
    assert choose(ExchangeConfig(), seen(rate, compute_seconds)).reason == reason


def test_a_strategy_may_have_several_names() -> None:
    place = "tandem.cluster.exchange.strategies.int4:STRATEGY"
    assert [find_strategy(kind).name for kind in ("int4", place, "int4")] == ["int4", place, "int4"]
    int4 = find_strategy("int4")
    find_strategy(place)
    assert int4.plan(ExchangeConfig()).kind == "int4"
