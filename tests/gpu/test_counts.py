"""Launches, synchronisations, messages and copies of training and search on a card; and the doctor's constants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.doctor.card.step_work import LAUNCHES
from tandem.model.memory_estimate import LOSS_CHUNK_ROWS
from tandem.model.search import LOOK_EVERY
from tests.gpu.machines import WITH_DROPOUT, Device, run, run_ranks, succeeded, training
from tests.gpu.steps import faults, observed_steps

pytestmark = pytest.mark.slow

MOST_LAUNCHES = 650


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """Those of bench/gpu_counts.py, and launches of narrow models with different numbers of layers and chunks."""
    told = run(Device(module="measured"), "figures")
    succeeded(told)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


@pytest.mark.long
def test_a_step_of_a_base_model(figures: dict[str, Any]) -> None:
    step = figures["step"]
    assert step["micro_batches"] == 4
    assert step["launches_a_micro_batch"] <= MOST_LAUNCHES
    assert step["synchronisations"] == 1
    assert step["float64_launches"] == 0


@pytest.mark.long
def test_beam_search_asks_twice_every_eight_positions(figures: dict[str, Any]) -> None:
    search = figures["beam_search"]
    # The sources and their limits go to the card once, and the translations come back once.
    asked = search["synchronisations_a_position"] * search["positions"] - 4
    assert asked <= 2 * search["positions"] / LOOK_EVERY["cuda"]


@pytest.mark.long
def test_both_branches_compute_the_same(figures: dict[str, Any]) -> None:
    differences = figures["objective_differences"]
    assert differences["float32"] < 1e-6
    assert differences["bfloat16"] < 1e-3
    assert differences["float16"] < 1e-4
    assert figures["same_translations"]


@pytest.mark.long
def test_the_doctor_counts_the_launches_that_there_are(figures: dict[str, Any]) -> None:
    base, narrow = Config.load("transformer-base"), figures["narrow"]
    tokens = base.batch.tokens
    assert tokens == 2 * LOSS_CHUNK_ROWS
    assert LAUNCHES.micro_batch(base.model, tokens) == figures["step"]["launches_a_micro_batch"]
    assert LAUNCHES.encoder_layer == narrow["2 encoder layers"] - narrow["one of each"]
    assert LAUNCHES.decoder_layer == narrow["2 decoder layers"] - narrow["one of each"]
    assert LAUNCHES.loss_chunk == narrow["2 chunks"] - narrow["one of each"]


@pytest.mark.parametrize(
    ("ranks", "precision"), [(1, "bfloat16"), (2, "float16"), pytest.param(2, "bfloat16", marks=pytest.mark.long)]
)
def test_every_step_of_a_real_training(ranks: int, precision: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """From one log line to the next, with one process and with two."""
    settings = (*WITH_DROPOUT, f"train.precision={precision}", "train.log_every=10", "train.max_steps=10")
    arguments = training(tiny_corpus, tmp_path / "run", *settings, "checkpoint.every_steps=100")
    device = Device(cards=ranks, module="observed")
    succeeded(*run_ranks(["one"] * ranks, device, str(tmp_path), "--", *arguments))
    for rank in range(ranks):
        steps = observed_steps(tmp_path, rank)
        assert [step["step"] for step in steps] == list(range(1, 11))
        assert [fault for step in steps for fault in faults(step)] == []
        # One vote a step; the gradients, a single bucket here, are all that goes over the card.
        for step in steps:
            over_the_card = {name: times for name, times in step["launches"].items() if name.startswith("nccl")}
            assert over_the_card == ({"nccl_allreduce": 1} if ranks > 1 else {})
            assert step["totals"]["messages"] >= (ranks > 1)
            batches = {copy.split(":")[0]: times for copy, times in step["copies"].items() if copy.startswith("H2D")}
            assert batches == {"H2D pinned model/batch.py": 4 // ranks}
