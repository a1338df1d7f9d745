"""The choice of a strategy, as a table of links and computers."""

from __future__ import annotations

import pytest

from tandem.cluster.probe import Link
from tandem.cluster.strategies import (
    HIDDEN_SLOW_DOWN,
    MOST_LOCAL_STEPS,
    ROUND_TRIPS,
    WORTH_QUALITY_SLOW_DOWN,
    Circumstances,
    Plan,
    choose,
)
from tandem.config import ExchangeConfig

MBIT = 1e6 / 8
# Two hosts and a gradient of 61 M values: 244 MB of float32, 122 MB of bfloat16, 31 MB of four bits.
TRANSFORMER_BASE = 61_000_000


def seen(
    rate: float,
    compute_seconds: float,
    *,
    latency: float = 0.0,
    hosts: int = 2,
    coding_seconds: float = 0.0,
    backend: str = "gloo",
    remembers: bool = True,
) -> Circumstances:
    return Circumstances(
        link=Link(rate * MBIT, latency),
        hosts=hosts,
        values=TRANSFORMER_BASE,
        compute_seconds=compute_seconds,
        coding_seconds=coding_seconds,
        backend=backend,
        remembers=remembers,
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
    assert chosen[1] <= (WORTH_QUALITY_SLOW_DOWN if expected.kind == "int4" else HIDDEN_SLOW_DOWN)
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
    choice = choose(ExchangeConfig(), seen(rate, 1.0, remembers=False))
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
        seen(1_000, 1.0).slow_down(Plan("bf16")) + 0.25 * ROUND_TRIPS["bf16"]
    )


def test_more_hosts_send_a_little_more() -> None:
    two, many = (seen(1_000, 1.0, hosts=hosts).exchange_seconds("allreduce") for hosts in (2, 1000))
    assert two == pytest.approx(1.952)
    assert many == pytest.approx(2 * 1.952, rel=2e-3)


def test_nccl_hides_some_of_an_all_reduce_behind_backward() -> None:
    gloo, nccl = (seen(5_000, 1.0, backend=backend) for backend in ("gloo", "nccl"))
    assert choose(ExchangeConfig(), gloo).plan == Plan("int4")
    assert choose(ExchangeConfig(), nccl).plan == Plan("allreduce")
    assert nccl.slow_down(Plan("allreduce")) == 1


@pytest.mark.parametrize(
    ("rate", "compute_seconds", "reason"),
    [
        (
            100_000,
            1.0,
            "allreduce: the hosts send each other 100,000 Mbit/s, so that allreduce makes a step of 1 s "
            "1.02 times as long",
        ),
        (
            100,
            1.6,
            "diloco with 16 local steps: the hosts send each other 100 Mbit/s, so that allreduce makes a step of 1.6 s "
            "13.20 times as long, this 1.10 times; it costs some quality (docs/slow-networks.md)",
        ),
    ],
)
def test_the_reason_names_the_rate_and_the_slow_down(rate: float, compute_seconds: float, reason: str) -> None:
    assert choose(ExchangeConfig(), seen(rate, compute_seconds)).reason == reason
