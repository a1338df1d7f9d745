"""Every command that computes, on one card; and runs that move between a card and a processor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import (
    EXACT,
    NARROW,
    ROUNDING,
    WITHOUT_DROPOUT,
    Device,
    largest_difference,
    records,
    run,
    succeeded,
    training,
    weights,
)

pytestmark = pytest.mark.slow

CARD = Device()
SETTINGS = (*WITHOUT_DROPOUT, "train.precision=auto", "batch.tokens=auto", "batch.step_tokens=512")


@pytest.fixture(scope="module")
def card_run(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps and an evaluation on one card, where nothing was said of precision and micro-batches."""
    made = tmp_path_factory.mktemp("gpu") / "run"
    succeeded(run(CARD, *training(tiny_corpus, made, *SETTINGS)))
    return made


def test_the_record_knows_the_card_and_what_was_chosen_for_it(card_run: Path) -> None:
    (started,) = records(card_run, "started")
    assert (started["device"], started["card"]) == ("cuda", "NVIDIA A100-SXM4-80GB")
    assert started["card_memory_bytes"] == 80_000_000_000
    assert started["precision"] == "bfloat16"
    choices = json.loads((card_run / "choices.json").read_text())
    basis = {"step_tokens": 512, "precision": "bfloat16", "max_length": 32}
    assert choices == {"precision": "bfloat16", "micro_batches": 1, "micro_batches_for": basis}
    assert (started["batch_tokens"], started["micro_batches"]) == (512, 1)
    assert records(card_run, "ended")[0]["reason"] == "finished"


def test_translations_and_scores_do_not_depend_on_the_device(card_run: Path) -> None:
    """A run that a card has trained works without one, with the same results: both compute in float32."""
    sentences = ("The good girl drinks the cold coffee.", "A young man saw my dog.")
    translated = [run(device, "translate", str(card_run), "--engine", "tandem", *sentences) for device in (CARD, None)]
    evaluated = [run(device, "evaluate", str(card_run), "--json") for device in (CARD, None)]
    succeeded(*translated, *evaluated)
    assert translated[0].stdout == translated[1].stdout
    here, there = (json.loads(told.stdout) for told in evaluated)
    assert (here["bleu"], here["signature"]) == (there["bleu"], there["signature"])
    assert here["eval_loss"] == pytest.approx(there["eval_loss"], rel=1e-5)


def test_average_on_a_card(card_run: Path) -> None:
    succeeded(run(CARD, "average", str(card_run), "--last", "2"))
    succeeded(run(CARD, "translate", str(card_run), "--checkpoint", "averaged", text="My dog.\n"))


def test_doctor_times_the_card_and_says_what_fits(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    told = run(
        # Products of 8,192 rows tell a card's speed, and take a processor half a minute.
        Device(module="patched"),
        *("small-products", "doctor", "demo", *NARROW, "batch.micro_batches=1", "train.max_steps=40", "--json"),
        *("--corpus", str(tiny_corpus.directory), "--run", str(tmp_path)),
    )
    assert told.returncode in (0, 1), told.stderr
    found = json.loads(told.stdout)
    assert found["machines"][0]["gpus"] == [{"name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 80_000_000_000}]
    assert found["needs"]["gpu_memory"]["total"] > found["needs"]["gpu_memory"]["context"]
    assert found["computing"]["together_seconds"] > 0


@pytest.mark.parametrize("begins_on_the_card", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_run_goes_on_with_another_device(
    begins_on_the_card: bool, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """Where nothing rounds differently, weights are the same to rounding as after six steps on one device."""
    devices = (CARD, None) if begins_on_the_card else (None, CARD)
    for device, steps in zip(devices, (3, 6), strict=True):
        told = run(device, *training(tiny_corpus, tmp_path / "moved", *EXACT, f"train.max_steps={steps}"))
        succeeded(told)
    succeeded(run(None, *training(tiny_corpus, tmp_path / "stayed", *EXACT)))
    assert largest_difference(weights(tmp_path / "moved", 6), weights(tmp_path / "stayed", 6)) < ROUNDING
    kinds = [started["device"] for started in records(tmp_path / "moved", "started")]
    assert kinds == (["cuda", "cpu"] if begins_on_the_card else ["cpu", "cuda"])
