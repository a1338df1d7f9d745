"""Rule 1: the number of processes changes only the speed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tandem.cluster.exchange.strategies.allreduce import AllReduce
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import MODEL_FILE
from tandem.monitor.step_clock import StepClock
from tandem.training import train_state
from tandem.training.batches import Batches, GlobalBatch, MicroBatch
from tandem.training.data_loader import MicroBatchLoader
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState
from testbed.journals import read_journal
from tests.training.processes import run_training

pytestmark = pytest.mark.slow

ALONE = World(0, 1, torch.device("cpu"))
# Sums of float32 in another order; the weights are of size 0.1 to 1. Processors differ in their order: up to 2e-6 was
# seen. A mean of the micro-batches' means, which would be wrong, moves weights by more than 1e-4.
RTOL, ATOL = 1e-4, 1e-5
STEPS = 12


def stepper_of(config: Config, corpus: PreparedCorpus) -> Stepper:
    batches = Batches.of_run(config, corpus.pairs("train"))
    state = TrainState.fresh(config, corpus.tokenizer.vocab_size, ALONE.device)
    exchange = AllReduce(state.flat_vectors(), ALONE)
    return Stepper(config, ALONE, state, MicroBatchLoader(batches, ALONE), StepClock(ALONE.device), exchange)


def merged(batch: GlobalBatch) -> GlobalBatch:
    """The same step as one large micro-batch."""
    rows = np.concatenate([micro_batch.rows for micro_batch in batch.micro_batches])
    return GlobalBatch(batch.step, [MicroBatch(0, rows, batch.target_tokens)])


def assert_equal_to_rounding(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    torch.testing.assert_close(left, right, rtol=RTOL, atol=ATOL)  # names what differs


def test_accumulation_takes_the_steps_of_one_large_batch(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config]
) -> None:
    # Without dropout, which is drawn for each micro-batch; Adam's epsilon keeps rounding in tiny gradients small.
    settings = ["train.precision=float32", "optimizer.epsilon=1e-6"]
    settings += [f"model.{kind}=0.0" for kind in ("dropout", "attention_dropout", "activation_dropout")]
    config = tiny_config(*settings)
    accumulating, at_once = stepper_of(config, tiny_corpus), stepper_of(config, tiny_corpus)
    for step in range(1, STEPS + 1):
        batch = accumulating.loader.fetch(step)
        # Micro-batches of different sizes: an average of their averages would be a different step.
        assert len({micro_batch.target_tokens for micro_batch in batch.micro_batches}) > 1
        [accumulated], [single] = accumulating.step(batch), at_once.step(merged(batch))
        assert accumulated.nll == pytest.approx(single.nll, rel=1e-5)
        assert accumulated.gradient_norm == pytest.approx(single.gradient_norm, rel=1e-4)
    assert_equal_to_rounding(accumulating.state.model.named_weights(), at_once.state.model.named_weights())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_passes_in_parallel_change_no_bit(
    precision: str,
    tiny_corpus: PreparedCorpus,
    tiny_config: Callable[..., Config],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With dropout, and four micro-batches a step: in threes, the last of them is alone."""
    config, ends = tiny_config(f"train.precision={precision}"), []
    for passes in (1, 2, 3):
        monkeypatch.setattr(train_state, "count_parallel", lambda *_, passes=passes: passes)
        stepper = stepper_of(config, tiny_corpus)
        results = [stepper.step(stepper.loader.fetch(step)) for step in range(1, 5)]
        ends.append((results, stepper.state.flat.vector.tolist()))
    assert ends[0] == ends[1] == ends[2]
    assert torch.get_num_threads() == 1


@pytest.fixture(scope="module")
def runs(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same training, dropout on, by one, two and three processes: 4, 2 and 2, 1, 1 micro-batches a step."""
    directories = {}
    for processes in (1, 2, 3):
        directories[processes] = tmp_path_factory.mktemp("runs") / "run"
        # All the dev set's hypotheses are in the journal, not only their BLEU, which is next to nothing so early.
        settings = ["train.precision=float32", "optimizer.epsilon=1e-6", "evaluation.samples=20"]
        ended = run_training(tiny_corpus, directories[processes], *settings, processes=processes)
        assert ended.returncode == 0, ended.stderr
    return directories


def final_weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / f"checkpoints/step-{STEPS:08d}" / MODEL_FILE)


def records(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    return [record for record in read_journal(run / f"journal/rank-{rank}.jsonl") if record["kind"] == kind]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_take_the_same_steps_as_one(runs: dict[int, Path], processes: int) -> None:
    alone, together = runs[1], runs[processes]
    assert_equal_to_rounding(final_weights(alone), final_weights(together))
    for left, right in zip(records(alone, "progressed"), records(together, "progressed"), strict=True):
        assert left["train_loss"] == pytest.approx(right["train_loss"], rel=1e-5)
        assert left["target_tokens"] == right["target_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_evaluate_alike(runs: dict[int, Path], processes: int) -> None:
    for left, right in zip(records(runs[1], "evaluated"), records(runs[processes], "evaluated"), strict=True):
        assert left["eval_loss"] == pytest.approx(right["eval_loss"], rel=1e-5)
        assert left["bleu"] == pytest.approx(right["bleu"], abs=1e-9)
        assert left["samples"] == right["samples"]
        assert any(sample["hypothesis"] for sample in left["samples"])


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "rank"), [(2, 0), (2, 1), (3, 0), (3, 2)])
def test_accumulation_does_not_communicate(runs: dict[int, Path], processes: int, rank: int) -> None:
    """A step sends each gradient once around the ring, however many micro-batches the process works through."""
    run = runs[processes]
    gradient_bytes = sum(weights.nbytes for weights in final_weights(run).values())
    ring_bytes = 2 * (processes - 1) / processes * gradient_bytes
    # A gradient may travel in several buckets, of each of which the fraction of a byte is cut off.
    sent = sum(record["exchanged_bytes"] for record in records(run, "progressed", rank))
    assert sent == pytest.approx(STEPS * ring_bytes, abs=STEPS * 16)


@pytest.mark.slow
def test_alone_nothing_is_exchanged(runs: dict[int, Path]) -> None:
    assert {record["exchanged_bytes"] for record in records(runs[1], "progressed")} == {0}
