"""Sums over hosts, made by real processes: the same numbers everywhere, few bytes, and nothing lost for good."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tandem.cluster.exchange.traffic import VALUES_PER_SCALE
from tests import warm
from tests.cluster.exchange.summing import (
    BREAK,
    END,
    HOSTS,
    LENGTHS,
    LOW_RANK_STEPS,
    MANY_STEPS,
    MATRIX_VALUES,
    RANK,
    SHAPES,
    SPOILS,
    WHOLE,
    found,
    full_rank,
    rank_one,
    spoilt,
    vector,
)

pytestmark = pytest.mark.slow

# Half a step of a stretch's largest value over seven, whose scale is rounded up twice to eight bits.
HALF_STEP = 0.5 / 7 * (1 + 2**-8) ** 2


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes left what they found."""
    directory = tmp_path_factory.mktemp("sums")
    command = [sys.executable, "-m", "tests.cluster.exchange.summing", str(directory)]
    ended = warm.run(command, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return directory


@pytest.fixture(params=HOSTS, ids=lambda hosts: f"{hosts} hosts")
def by_host(request: pytest.FixtureRequest, directory: Path) -> list[dict[str, Tensor]]:
    """What each of so many hosts found."""
    return found(directory, request.param)


def stretch_largest(values: Tensor) -> Tensor:
    """For every value the largest of its stretch."""
    whole = torch.nn.functional.pad(values.abs(), (0, -len(values) % VALUES_PER_SCALE))
    largest = whole.view(-1, VALUES_PER_SCALE).amax(1)
    return largest.repeat_interleave(VALUES_PER_SCALE)[: len(values)]


def owners(length: int, hosts: int) -> Tensor:
    """Which host adds up each value."""
    part = -(-length // (hosts * VALUES_PER_SCALE)) * VALUES_PER_SCALE
    return torch.arange(length) // part


def test_all_hosts_end_with_the_same_bits(by_host: list[dict[str, Tensor]]) -> None:
    own = ("bytes", "errors", "lost", "lost_of_total")
    shared = [name for name in by_host[0] if name.rsplit(".", 1)[1] not in own]
    assert len(shared) > 30
    for other in by_host[1:]:
        for name in shared:
            assert by_host[0][name].numpy().tobytes() == other[name].numpy().tobytes(), name


@pytest.mark.parametrize("length", LENGTHS)
def test_four_bits_are_off_by_half_a_step_of_each_rounding(by_host: list[dict[str, Tensor]], length: int) -> None:
    hosts = len(by_host)
    vectors = [vector(length, host) for host in range(hosts)]
    exact = torch.stack(vectors).double().sum(0)
    # Whoever adds a value up does not round its own; everybody else's is rounded, and then the sum.
    travelled = torch.stack(
        [stretch_largest(values) * (owners(length, hosts) != h) for h, values in enumerate(vectors)]
    )
    bound = HALF_STEP * travelled.sum(0)
    bound += HALF_STEP * stretch_largest(exact.abs() + bound)
    error = (by_host[0][f"int4.{length}"] - exact).abs()
    assert (error <= bound * (1 + 1e-5)).all()
    # The bound is no idle one: at least somewhere the error comes near it.
    assert length == 1 or (error > bound / 4).any()


@pytest.mark.parametrize("length", LENGTHS)
def test_bfloat16_keeps_eight_bits(by_host: list[dict[str, Tensor]], length: int) -> None:
    vectors = torch.stack([vector(length, host) for host in range(len(by_host))]).double()
    error = (by_host[0][f"bf16.{length}"] - vectors.sum(0)).abs()
    # Everybody's value and the sum are each rounded by at most half of the eighth bit.
    assert (error <= 2**-8 * (vectors.sum(0).abs() + 1.01 * vectors.abs().sum(0))).all()
    assert (error > 0).any()


@pytest.mark.parametrize(("kind", "bytes_a_value"), [("int4", 0.5 + 2 / 256), ("bf16", 2)])
def test_bytes_are_those_of_a_ring(by_host: list[dict[str, Tensor]], kind: str, bytes_a_value: float) -> None:
    hosts = len(by_host)
    for own in by_host:
        sent, asked_again = own[f"{kind}.{WHOLE}.bytes"].tolist()
        assert sent == 2 * (hosts - 1) / hosts * WHOLE * bytes_a_value
        assert asked_again == 0
    # Where the length does not fit, each part is filled up to whole stretches, and no further.
    for length in LENGTHS:
        filled = length + hosts * VALUES_PER_SCALE
        assert by_host[0][f"{kind}.{length}.bytes"][0] <= 2 * (hosts - 1) / hosts * filled * bytes_a_value


@pytest.mark.parametrize("kind", ["bf16", "int4"])
def test_zeros_stay_zeros(by_host: list[dict[str, Tensor]], kind: str) -> None:
    assert not by_host[0][f"{kind}.zeros"].any()


@pytest.mark.parametrize("kind", ["bf16", "int4"])
@pytest.mark.parametrize("spoil", SPOILS)
def test_what_is_not_finite_on_one_host_is_not_finite_on_all(
    by_host: list[dict[str, Tensor]], kind: str, spoil: str
) -> None:
    for own in by_host:
        result = own[f"{kind}.{spoil}"]
        assert not result[300].isfinite()
        # It spoils no more than the stretches it travelled in.
        assert result[:256].isfinite().all()
        assert result[512:].isfinite().all()
    assert not spoilt(spoil, 1).isfinite().all()


def test_what_four_bits_lose_comes_later(by_host: list[dict[str, Tensor]]) -> None:
    """The sum of all that has arrived is never further from the sum of all put in than a step's rounding error."""
    hosts = len(by_host)
    put_in = torch.stack(
        [sum(vector(1000, host, step).double() for host in range(hosts)) for step in range(MANY_STEPS)]  # type: ignore[misc]
    )
    arrived = by_host[0]["int4.many"].double()
    behind = (put_in.cumsum(0) - arrived.cumsum(0)).abs()
    # No host ever sends more in a stretch than its largest value and what it still owed, at most half a step.
    largest = torch.stack(
        [stretch_largest(vector(1000, host, step)) for host in range(hosts) for step in range(MANY_STEPS)]
    ).amax(0)
    owed_by_one = HALF_STEP / (1 - HALF_STEP) * largest
    total = hosts * (largest + 2 * owed_by_one)
    bound = (hosts - 1) * owed_by_one + HALF_STEP / (1 - HALF_STEP) * total
    assert (behind <= bound).all()
    # Without feedback errors would add up like a random walk: at least somewhere beyond that of a step.
    single_errors = (put_in - arrived).abs()
    assert behind[-1].mean() < 2 * single_errors.mean()


def test_what_is_owed_is_paid_in_full(by_host: list[dict[str, Tensor]]) -> None:
    """If nothing new is put in, what was lost still comes, until nothing worth mentioning is left."""
    hosts = len(by_host)
    put_in = sum(vector(1000, host, step).double() for host in range(hosts) for step in range(MANY_STEPS))
    arrived = by_host[0]["int4.many"].double().sum(0) + by_host[0]["int4.rest"].double().sum(0)
    size = stretch_largest(torch.stack([vector(1000, host) for host in range(hosts)]).abs().sum(0))
    assert isinstance(put_in, Tensor)
    assert ((put_in - arrived).abs() <= 1e-4 * size).all()


@pytest.mark.parametrize("rank", [1, 2, RANK])
def test_a_gradient_of_nothing_stays_nothing(by_host: list[dict[str, Tensor]], rank: int) -> None:
    # Factors of nothing have no direction that could be divided by its length.
    assert torch.equal(by_host[0][f"powersgd.zeros.rank_{rank}"], torch.zeros(4, MATRIX_VALUES))


def split(values: Tensor) -> list[Tensor]:
    parts = torch.split(values, [shape.numel() for shape in SHAPES])
    return [part.view(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def test_a_matrix_of_rank_one_is_exact(by_host: list[dict[str, Tensor]]) -> None:
    exact = sum(rank_one(host) for host in range(len(by_host)))
    assert isinstance(exact, Tensor)
    # The first two travel whole; from then on two factors do.
    for result in by_host[0]["powersgd.rank_one"]:
        torch.testing.assert_close(result, exact, rtol=1e-4, atol=1e-4)


def test_low_rank_sends_thin_factors(by_host: list[dict[str, Tensor]]) -> None:
    hosts = len(by_host)
    ring = 2 * (hosts - 1) / hosts * 4
    thin = RANK * (24 + 16) + 16 + RANK * (8 + 40)
    assert by_host[0]["powersgd.bytes"].tolist() == [int(ring * MATRIX_VALUES)] * 2 + [int(ring * thin)] * (
        LOW_RANK_STEPS - 2
    )


def test_what_low_rank_loses_comes_later(by_host: list[dict[str, Tensor]]) -> None:
    hosts = len(by_host)
    put_in = sum(full_rank(host).double() for host in range(hosts))
    assert isinstance(put_in, Tensor)
    results = by_host[0]["powersgd.full_rank"].double()
    owed = sum(own["powersgd.errors"].double() for own in by_host)
    # All that was put in has arrived, or is remembered by one of the hosts.
    torch.testing.assert_close(results.sum(0) + owed, LOW_RANK_STEPS * put_in, rtol=1e-4, atol=1e-3)
    for result, mean, exact in zip(split(results[2]), split(results[2:].mean(0)), split(put_in), strict=True):
        if exact.dim() == 1:  # travels whole
            torch.testing.assert_close(result, exact, rtol=1e-4, atol=1e-4)
        else:
            assert torch.linalg.matrix_rank(result, rtol=1e-4) == RANK
            # One step shows little of the matrix; the mean of many shows most of it.
            assert (result - exact).norm() > 0.3 * exact.norm()
            assert (mean - exact).norm() < 0.15 * exact.norm()


@pytest.mark.parametrize("kind", ["bf16", "int4", "powersgd"])
def test_whoever_takes_over_the_memory_goes_on_the_same(by_host: list[dict[str, Tensor]], kind: str) -> None:
    remembers = kind in ("int4", "powersgd")
    for own in by_host:
        alone = {name: tensor for name, tensor in own.items() if name.startswith(f"{kind}.alone")}
        assert alone[f"{kind}.alone"].shape == (END - BREAK, MATRIX_VALUES)
        assert (len(alone) > 1) is remembers
        for name, tensor in alone.items():
            assert torch.equal(tensor, own[name.replace(".alone", ".heir")]), name
        assert torch.equal(own[f"{kind}.alone"], own[f"{kind}.forgetful"]) is not remembers
