"""The number format follows the card, and what all cards can do; TF32 only where it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import V100, Device, one_sentence, records, run, run_ranks, succeeded, training
from tests.gpu.steps import observed_steps

pytestmark = pytest.mark.slow

AUTO = ("train.precision=auto", "train.max_steps=1")
PASCAL = Device(capability="6.0", name="Tesla P100-PCIE-16GB", memory_gb=16.0)


@pytest.mark.parametrize(("device", "precision"), [(Device(), "bfloat16"), (V100, "float16"), (PASCAL, "float32")])
def test_a_card_gets_the_best_that_it_computes_natively(
    device: Device, precision: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    told = run(device, *training(tiny_corpus, tmp_path, *AUTO))
    succeeded(told)
    assert records(tmp_path, "started")[0]["precision"] == precision
    assert f"1 process on {device.name}, {precision}" in told.stdout


def test_different_cards_take_what_all_can_do(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    succeeded(*run_ranks(["new", "old"], [Device(), V100], *training(tiny_corpus, tmp_path, *AUTO)))
    started = [records(tmp_path, "started", rank)[0] for rank in (0, 1)]
    assert [record["precision"] for record in started] == ["float16", "float16"]
    assert [record["card"] for record in started] == ["NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"]


def test_a_precision_that_contradicts_the_exchange_is_refused(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    arguments = training(tiny_corpus, tmp_path, *AUTO, "exchange.kind=int4")
    sentence = one_sentence(run_ranks(["one", "two"], V100, *arguments))
    assert sentence.startswith(
        "tandem: train.precision=auto took float16 on these devices: exchange.kind: int4 remembers"
    )
    assert "choose bf16, or train.precision=bfloat16" in sentence


@pytest.mark.parametrize(("wished", "used"), [("true", "tf32"), ("false", "ieee")])
def test_tf32(wished: str, used: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    settings = ("train.precision=float32", f"train.tf32={wished}", "train.max_steps=1")
    told = run(Device(module="observed"), str(tmp_path), "--", *training(tiny_corpus, tmp_path / "run", *settings))
    succeeded(told)
    assert observed_steps(tmp_path)[0]["settings"]["fp32_precision"] == used
    # Neither is deterministic, because nobody asked for it.
    assert not observed_steps(tmp_path)[0]["settings"]["deterministic"]
    assert not records(tmp_path / "run", "started")[0]["deterministic"]
