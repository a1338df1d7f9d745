"""Predictions for cards that are not here: what bounds a run, what is refused, and what others have published."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tandem.cards import CARDS, Card, find_card
from tandem.cluster.exchange.strategy import find_strategy
from tandem.cluster.exchange.traffic import ring_bytes
from tandem.config import Config, ExchangeConfig
from tandem.doctor.card.prediction import (
    LAUNCHES,
    MATRIX,
    MEMORY,
    NETWORK,
    SPREAD,
    CardPrediction,
    Machines,
    predict_on_card,
)
from tandem.doctor.card.step_work import (
    HOST_SECONDS,
    KERNEL_SECONDS,
    TARGET_FILL,
    CardSpeed,
    LaunchCounts,
    micro_batch_work,
)
from tandem.doctor.doctor_text import show_prediction
from tandem.doctor.gpu_memory import Batching, batching_on
from tandem.errors import TandemError
from tandem.model.transformer import Transformer
from testbed.published_speeds import DROPOUT, OLD_NVIDIA, PUBLISHED, Published
from tests import warm

VOCABULARY = 32_000


def predict(preset: str, card: str, *overrides: str, **machines: float) -> CardPrediction:
    return predict_on_card(Config.load(preset, overrides), VOCABULARY, Machines(find_card(card), **machines))  # type: ignore[arg-type]


@pytest.mark.parametrize("each", [each for each in PUBLISHED if each.close], ids=lambda each: f"{each.machines}")
def test_published_speeds_lie_within_thirty_percent_and_within_the_spread(each: Published) -> None:
    assert 1 / 1.3 <= each.speed_ratio() <= 1.3
    assert SPREAD[0] <= each.speed_ratio() <= SPREAD[1]


def test_programs_unlike_tandem_are_slower_than_predicted_or_have_another_link() -> None:
    """They stand in the table, so that nobody takes the prediction for theirs."""
    apart = [each.speed_ratio() for each in PUBLISHED if not each.close]
    assert max(apart) > 1.3


def test_the_time_of_a_token_is_closer_than_that_of_a_step() -> None:
    """Between two batch sizes of one program on one card, what it spends once a step cancels out."""
    (few, speed_few), (many, speed_many) = (
        (each.tokens, each.tokens_per_second) for each in PUBLISHED if each.source == OLD_NVIDIA
    )
    assert speed_few is not None
    assert speed_many is not None
    published = TARGET_FILL * (few / speed_few - many / speed_many) / (few - many)
    config = Config.load("transformer-big", DROPOUT)
    speed = CardSpeed.of(find_card("V100-SXM2-16GB"), "float16")
    seconds = [micro_batch_work(config.model, 33_708, tokens, "float16", speed).seconds for tokens in (few, many)]
    assert (seconds[0] - seconds[1]) / (few - many) == pytest.approx(published, rel=0.1)


def test_a_product_is_bound_by_arithmetic_or_by_memory() -> None:
    speed = CardSpeed(operations=1e12, bytes=1e9)
    # 2 x 1000^3 operations take 2 ms; 3 million values of 2 bytes take 6 ms.
    assert speed.product_seconds(1000, 1000, 1000, size=2) == pytest.approx(0.006 + KERNEL_SECONDS)
    assert CardSpeed(1e12, 1e12).product_seconds(1000, 1000, 1000, size=2) == pytest.approx(0.002 + KERNEL_SECONDS)


@pytest.mark.parametrize(
    ("card", "precision", "tf32", "tflops"),
    [
        ("A100", "bfloat16", False, 0.75 * 312),
        ("A100", "float32", False, 0.9 * 19.5),
        ("A100", "float32", True, 0.75 * 156),
        ("V100", "float16", False, 0.75 * 112),
        # Emulated, and without tensor cores.
        ("V100", "bfloat16", False, 0.9 * 14),
        ("V100", "float32", True, 0.9 * 14),
        ("P100", "float16", False, 0.9 * 9.3),
    ],
)
def test_rates_that_programs_reach(card: str, precision: str, tf32: bool, tflops: float) -> None:
    assert CardSpeed.of(find_card(card), precision, tf32=tf32).operations == pytest.approx(tflops * 1e12)


def test_launches_of_a_micro_batch() -> None:
    counts = LaunchCounts(encoder_layer=3, decoder_layer=5, loss_chunk=7, rest=11)
    model = Config.load("transformer-base", ["model.encoder_layers=2", "model.decoder_layers=4"]).model
    assert counts.micro_batch(model, 4_096) == 2 * 3 + 4 * 5 + 7 + 11
    assert counts.micro_batch(model, 4_097) == 2 * 3 + 4 * 5 + 2 * 7 + 11


def test_a_tiny_model_waits_for_launches() -> None:
    found = predict("demo", "H100")
    assert found.bound == LAUNCHES
    assert found.parts[LAUNCHES] > found.parts[MATRIX]
    launches = LaunchCounts().micro_batch(Config.load("demo").model, 901)
    assert found.step_seconds == pytest.approx(2 * launches * HOST_SECONDS, rel=0.05)


def test_a_large_model_waits_for_products_and_a_slow_link_for_the_network() -> None:
    assert predict("transformer-big", "V100").bound == MATRIX
    assert predict("transformer-base", "H100-PCIE", "batch.tokens=32768").bound == MEMORY
    slow = predict("transformer-base", "V100", "exchange.kind=allreduce", hosts=2, link_mbit=100)
    assert slow.bound == NETWORK
    # 242 MB pass each of two cards: at 100 Mbit/s with TCP's share, and nearly all of it in the open.
    assert slow.parts[NETWORK] == pytest.approx(ring_bytes(4 * 60_526_592, 2) / (12.5e6 * 1448 / 1538), rel=0.02)
    assert "makes a step" in slow.reasons_against[0]


def test_parts_add_up_to_the_step() -> None:
    for found in (
        predict("small", "L4"),
        predict("transformer-base", "A100", cards=4),
        predict("transformer-base", "A100", cards=2, hosts=2, link_mbit=10_000),
        predict("transformer-base", "A100", hosts=2, link_mbit=100),
    ):
        assert sum(found.parts.values()) == pytest.approx(found.step_seconds)
        low, high = found.step_seconds_range
        assert low < found.step_seconds < high


def test_hours_and_cost() -> None:
    found = predict("transformer-base", "A100", "train.max_steps=3600", price_per_hour=4.0)
    assert found.hours == pytest.approx(found.step_seconds)
    assert found.cost == pytest.approx(4 * found.hours)
    two = predict("transformer-base", "A100", "exchange.kind=allreduce", hosts=2, price_per_hour=4.0)
    assert two.cost == pytest.approx(8 * two.hours)


def test_a_batch_too_large_for_the_card_is_refused_with_one_that_fits() -> None:
    found = predict("transformer-big", "T4", "batch.tokens=32768", "batch.micro_batches=2")
    assert found.fitting is not None
    (reason,) = found.reasons_against
    assert reason.startswith("T4: training needs 26.61 GB on a GPU, which has 16.00 GB: set batch.tokens=13056 ")
    assert reason.endswith("batch.micro_batches=6")
    settings = [f"batch.tokens={found.fitting.tokens}", f"batch.micro_batches={found.fitting.micro_batches}"]
    assert not predict("transformer-big", "T4", *settings).reasons_against
    huge = predict("transformer-big", "K80", "model.d_model=4096", "model.d_ff=16384")
    assert "take a smaller model or a larger card" in huge.reasons_against[0]


def test_micro_batches_are_the_settings_or_what_fits() -> None:
    fixed = Config.load("transformer-base")
    assert batching_on(fixed, VOCABULARY, 16 * 10**9, 2) == Batching(8192, 4)
    with pytest.raises(TandemError, match=r"4 cannot keep 8 processes busy; batch\.micro_batches=8 batch\.tokens=4096"):
        batching_on(fixed, VOCABULARY, 16 * 10**9, 8)
    auto = Config.load("transformer-base", ["batch.tokens=auto", "batch.step_tokens=32768"])
    assert batching_on(auto, VOCABULARY, 80 * 10**9, 1) == Batching(32768, 1)
    assert batching_on(auto, VOCABULARY, 80 * 10**9, 3) == Batching(10922, 3)
    # 8 GB hold 12,800 tokens: three micro-batches, or four for two processes.
    assert batching_on(auto, VOCABULARY, 8 * 10**9, 1) == Batching(10922, 3)
    assert batching_on(auto, VOCABULARY, 8 * 10**9, 2) == Batching(8192, 4)


@pytest.mark.parametrize("kind", ["allreduce", "bf16", "int4", "powersgd", "diloco"])
def test_every_exchange_can_be_predicted(kind: str) -> None:
    found = predict("transformer-base", "A100", f"exchange.kind={kind}", hosts=2, link_mbit=100)
    assert found.exchange is not None
    assert found.exchange.chosen.kind == kind


def test_what_low_rank_factors_send() -> None:
    model = Config.load("transformer-base", ["model.encoder_layers=1", "model.decoder_layers=1"]).model
    with torch.device("meta"):
        shapes = [parameter.shape for parameter in Transformer(model, VOCABULARY).parameters()]
    expected = sum(4 * sum(shape) if len(shape) == 2 else shape.numel() for shape in shapes)
    assert find_strategy("powersgd").payload_bytes(ExchangeConfig(powersgd_rank=4), shapes) == 4 * expected


def test_a_precision_that_contradicts_the_exchange_is_refused() -> None:
    with pytest.raises(TandemError, match=r"train.precision=auto is float16 on V100-PCIE-16GB: exchange.kind: int4"):
        predict("transformer-base", "V100", "exchange.kind=int4", hosts=2)


def test_precision_follows_the_card() -> None:
    assert predict("transformer-base", "A100").precision == "bfloat16"
    assert predict("transformer-base", "V100").precision == "float16"
    emulated = predict("transformer-base", "V100", "train.precision=bfloat16")
    assert "emulates it slowly" in emulated.notes[0]
    assert emulated.step_seconds > 2 * predict("transformer-base", "V100").step_seconds


@given(st.sampled_from(CARDS), st.integers(8, 512), st.sampled_from(["demo", "transformer-base"]))
def test_more_tokens_take_longer_but_are_never_slower_each(card: Card, hundreds: int, preset: str) -> None:
    model, speed = Config.load(preset).model, CardSpeed.of(card, card.precision("auto"))
    tokens, precision = 256 * hundreds, card.precision("auto")
    less, more = (micro_batch_work(model, 8_000, count, precision, speed).seconds for count in (tokens, 2 * tokens))
    assert less <= more <= 2.01 * less


def test_people_read_the_same_figures() -> None:
    found = predict("transformer-base", "A100", hosts=2, cards=2, link_mbit=100, price_per_hour=3)
    console = Console(width=200, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        show_prediction(found, console)
    text = captured.get()
    assert "Predicted from data sheets, nothing was measured: 2 hosts over 100 Mbit/s with 2 x A100-SXM4-40GB" in text
    assert f"{found.tokens_per_second:,.0f} target tokens/s" in text
    assert "cost at $3.00 a machine-hour x 2" in text
    assert "memory on each GPU" in text
    assert found.advice in text


def _doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run([sys.executable, "-m", "tandem", "doctor", *arguments])


def test_the_command_line_needs_no_card_and_no_pytorch() -> None:
    script = """
import sys
from tandem.cli import command_line
try:
    command_line.main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
    arguments = ["doctor", "transformer-base", "--card", "V100", "--json"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "False\n")
    assert answer["predicted"] is True
    assert answer["machines"]["card"]["name"] == "V100-PCIE-16GB"
    assert answer["precision"] == "float16"
    assert answer["memory"]["total"] > answer["memory"]["activations"]
    assert answer["bound"] in (MATRIX, MEMORY)


@pytest.mark.slow
def test_the_command_line_advises_against_what_does_not_fit() -> None:
    done = _doctor("transformer-big", "--card", "t4", "batch.tokens=65536")
    assert done.returncode == 1
    assert "Do not start yet" in done.stdout
    unknown = _doctor("transformer-big", "--card", "GTX 1080")
    assert (unknown.returncode, unknown.stdout, unknown.stderr.count("\n")) == (2, "", 1)
