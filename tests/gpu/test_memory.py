"""Too little memory on a card: split steps, one sentence with the remedy, refusals before the first step, estimates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.model.memory_estimate import CONTEXT_BYTES, USABLE_SHARE, estimate_memory
from tests.gpu.machines import (
    EXACT,
    NARROW,
    ROUNDING,
    WITHOUT_DROPOUT,
    Device,
    journal,
    largest_difference,
    one_sentence,
    records,
    run,
    run_ranks,
    succeeded,
    training,
    weights,
)

pytestmark = pytest.mark.slow

# float32 logits of 128 tokens take 300 kB, and nothing else in a pass of the narrow model takes as much.
LARGE = 200_000
SPLIT = "batch.split_when_full=true"


@pytest.fixture(scope="module")
def unsplit(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("unsplit") / "run"
    succeeded(run(Device(), *training(tiny_corpus, made, *EXACT)))
    return made


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_card_makes_every_process_split(
    ranks: int, unsplit: Path, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """Only the second of two cards is full, once, in the second step; both work in halves from there on."""
    arguments = training(tiny_corpus, tmp_path / "run", *EXACT, SPLIT)
    observed, full = Device(cards=ranks, module="observed"), f"full=2:{LARGE}:{ranks - 1}"
    succeeded(*run_ranks(["alpha"] * ranks, observed, str(tmp_path), full, "--", *arguments))
    for rank in range(ranks):
        messages = [record["message"] for record in records(tmp_path / "run", "noticed", rank)]
        assert messages[1:] == [
            f"step 2: the GPU of rank {ranks - 1} on alpha has too little memory for batch.tokens=128; from here on "
            "each micro-batch is worked through in 2 parts (batch.tokens=64 would do from the start)"
        ]
        steps = json.loads((tmp_path / f"steps-{rank}.json").read_text())
        lookups = [step["launches"]["embedding"] for step in steps]
        assert lookups[2:] == [2 * lookups[0]] * 4
    assert largest_difference(weights(tmp_path / "run", 6), weights(unsplit, 6)) < ROUNDING
    losses = [[record["train_loss"] for record in records(path, "progressed")] for path in (tmp_path / "run", unsplit)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("ranks", [1, 2])
def test_without_splitting_it_is_one_sentence(ranks: int, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    arguments = training(tiny_corpus, tmp_path / "run", *EXACT, "batch.split_when_full=false")
    observed, full = Device(cards=ranks, module="observed"), f"full=2:{LARGE}:{ranks - 1}"
    told = run_ranks(["alpha"] * ranks, observed, str(tmp_path), full, "--", *arguments)
    sentence = one_sentence(told)
    assert sentence.startswith(f"tandem: step 2: the GPU of rank {ranks - 1} on alpha has too little memory")
    assert "batch.tokens=64 batch.micro_batches=8 makes steps of the same size" in sentence
    assert "batch.split_when_full=true" in sentence
    for rank in range(ranks):
        last = journal(tmp_path / "run", rank)[-1]
        assert last["kind"] == "ended"
        assert last["reason"] == sentence.replace("tandem: ", "failed: ")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_card_too_small_for_the_model_is_refused_before_the_first_step(
    ranks: int, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """The second of two hosts has the small card."""
    devices = [*[Device()] * (ranks - 1), Device(memory_gb=0.3, name="NVIDIA Toy")]
    hosts = ["alpha", "beta"][-ranks:]
    sentence = one_sentence(run_ranks(hosts, devices, *training(tiny_corpus, tmp_path / "run", "train.precision=auto")))
    where = "rank 1 on beta: " if ranks == 2 else ""
    assert sentence.startswith(f"tandem: {where}training needs about ")
    assert "but NVIDIA Toy has 0.3 GB; take a smaller model, or take a larger card" in sentence
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_micro_batches_by_memory_are_kept_on_another_card(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    settings = ("batch.tokens=auto", "batch.step_tokens=512", *WITHOUT_DROPOUT)
    model = Config.load("demo", [*NARROW, *WITHOUT_DROPOUT]).model
    enough = estimate_memory(model, tiny_corpus.tokenizer.vocab_size, 300, "bfloat16").total / USABLE_SHARE
    small = Device(memory_gb=enough / 1e9)
    succeeded(run(small, *training(tiny_corpus, tmp_path, *settings, "train.max_steps=3")))
    choices = json.loads((tmp_path / "choices.json").read_text())
    assert choices["micro_batches"] == 2
    succeeded(run(Device(), *training(tiny_corpus, tmp_path, *settings)))
    assert json.loads((tmp_path / "choices.json").read_text()) == choices
    first, second = records(tmp_path, "started")
    assert first["card_memory_bytes"] < second["card_memory_bytes"]
    assert (second["batch_tokens"], second["micro_batches"]) == (256, 2)


def test_micro_batches_by_trial_where_arithmetic_is_too_hopeful(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """The trial step does not fit: the half of what arithmetic says is taken."""
    observed = Device(module="patched")
    settings = ("batch.tokens=auto", "batch.step_tokens=512", *WITHOUT_DROPOUT, "train.max_steps=1")
    succeeded(run(observed, "full-at-the-first-trial", *training(tiny_corpus, tmp_path, *settings)))
    (started,) = records(tmp_path, "started")
    assert (started["batch_tokens"], started["micro_batches"]) == (256, 2)


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_the_estimate_covers_what_a_step_takes(precision: str) -> None:
    told = run(Device(module="measured"), "memory", precision)
    succeeded(told)
    found = json.loads(told.stdout)
    assert found["counted"] <= found["estimated"] <= 1.5 * found["counted"]
    assert found["context"] == CONTEXT_BYTES


def test_a_trial_leaves_nothing_on_the_card() -> None:
    told = run(Device(module="measured"), "trial")
    succeeded(told)
    assert json.loads(told.stdout) == {"left": 0}


def test_full_outside_of_a_pass(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """Adam's means are made in the first update, which cannot be split."""
    told = run(Device(module="patched"), "full-in-the-update", *training(tiny_corpus, tmp_path, *EXACT))
    sentence = one_sentence([told])
    assert sentence.startswith("tandem: CUDA out of memory. Tried to allocate ")
    assert "lower batch.tokens or take a smaller model" in sentence
    assert journal(tmp_path)[-1]["reason"] == sentence.replace("tandem: ", "failed: ")


def test_cards_with_different_room_share_a_search(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """How many sentences go together depends on the memory that is left, and all must cut the same batches."""
    arguments = training(tiny_corpus, tmp_path / "run", *EXACT, "train.max_steps=1", "evaluation.samples=20")
    succeeded(run(Device(), *arguments))
    (alone,) = records(tmp_path / "run", "evaluated")
    evaluate = ("evaluate", str(tmp_path / "run"), "search.batch_sentences=auto", "evaluation.samples=20")
    told = run_ranks(["one", "two"], Device(module="patched"), "little-room", *evaluate, "--split", "dev", "--json")
    succeeded(*told)
    assert json.loads(told[0].stdout)["samples"] == alone["samples"]
