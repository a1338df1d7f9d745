"""The moving average of the weights: what it is, that training does not feel it, and that stopping changes nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tandem.cluster.exchange.strategies.allreduce import AllReduce
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, UNAVERAGED_FILE
from tandem.model.weight_average import SHORTEST_MEMORY
from tandem.monitor.step_clock import StepClock
from tandem.training.batches import Batches
from tandem.training.checkpoints.checkpoint import read, save
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.data_loader import MicroBatchLoader
from tandem.training.evaluate import evaluate_run
from tandem.training.run_directory import Run
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState
from testbed.journals import read_journal
from tests.training.processes import run_training, signal_training_when

CPU = torch.device("cpu")
ALONE = World(0, 1, CPU)
# Slow enough for the decay to rise over the first steps and to stay where it is over the last.
DECAY = 0.4
AVERAGED = f"train.ema_decay={DECAY}"
STEPS = 12


def moved(state: TrainState, step: int, steps: int = 1) -> Tensor:
    """Weights as a step may leave them, taken into their average."""
    torch.manual_seed(step)
    state.flat.vector.data += 0.1 * torch.randn_like(state.flat.vector)
    assert state.average is not None
    state.average.update(step, steps)
    return state.flat.vector.detach().double()


def stepped(config: Config, corpus: PreparedCorpus) -> tuple[TrainState, list[Tensor]]:
    """The state after some steps of training, and the weights after each."""
    state = TrainState.fresh(config, corpus.tokenizer.vocab_size, CPU)
    loader = MicroBatchLoader(Batches.of_run(config, corpus.pairs("train")), ALONE)
    stepper = Stepper(config, ALONE, state, loader, StepClock(CPU), AllReduce(state.flat_vectors(), ALONE))
    weights = []
    for step in range(1, STEPS + 1):
        stepper.step(loader.fetch(step))
        weights.append(state.flat.vector.detach().clone())
    return state, weights


@pytest.mark.slow
def test_it_is_the_average_of_the_weights_after_every_step_which_do_not_feel_it(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config]
) -> None:
    state, weights = stepped(tiny_config(AVERAGED), tiny_corpus)
    plain, same_weights = stepped(tiny_config(), tiny_corpus)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights, same_weights, strict=True))
    assert plain.average is None
    reference = torch.zeros_like(weights[0], dtype=torch.float64)
    left = 1.0
    # From the newest step back: each has what the later ones leave of the whole.
    for step, vector in reversed(list(enumerate(weights, 1))):
        decay = min(DECAY, step / (step + SHORTEST_MEMORY))
        reference += left * (1 - decay) * vector.double()
        left *= decay
    # What is left is the share of the first weights, of a fresh state.
    reference += left * TrainState.fresh(tiny_config(), tiny_corpus.tokenizer.vocab_size, CPU).flat.vector.double()
    assert state.average is not None
    assert not torch.allclose(state.average.vector, weights[-1], atol=1e-4)
    torch.testing.assert_close(state.average.vector.double(), reference, rtol=1e-5, atol=1e-7)
    for name, average in state.evaluated.named_weights().items():
        torch.testing.assert_close(average, state.flat.named(state.average.vector)[name], rtol=0, atol=0)


def test_steps_that_hosts_take_by_themselves_count_as_that_many(tiny_config: Callable[..., Config]) -> None:
    state = TrainState.fresh(tiny_config(AVERAGED), 64, CPU)
    assert state.average is not None
    before = state.average.vector.double()
    weights = moved(state, 100, steps=4)
    torch.testing.assert_close(
        state.average.vector.double(), DECAY**4 * before + (1 - DECAY**4) * weights, rtol=1e-5, atol=1e-7
    )


def test_a_checkpoint_has_the_average_for_use_and_the_weights_to_go_on(
    tiny_config: Callable[..., Config], tmp_path: Path
) -> None:
    config, plain = tiny_config(AVERAGED), tiny_config()
    state = TrainState.fresh(config, 64, CPU)
    moved(state, 1)
    saved = save(tmp_path / "averaged", state)
    assert saved.state["files"].keys() == {MODEL_FILE, OPTIMIZER_FILE, UNAVERAGED_FILE}
    again, without, used = TrainState.fresh(config, 64, CPU), TrainState.fresh(plain, 64, CPU), tmp_path / "plain"
    for other in (again, without):
        read(tmp_path / "averaged").restore(other)
        assert torch.equal(other.flat.vector, state.flat.vector)
    assert state.average is not None
    assert again.average is not None
    assert torch.equal(again.average.vector, state.average.vector)
    # The file for use goes without saying what it is.
    for name, tensor in saved.model().items():
        assert torch.equal(tensor, state.average.model.state_dict()[name])
    save(used, without)
    read(used).restore(again)
    assert torch.equal(again.average.vector, state.flat.vector)


@pytest.mark.slow
def test_killed_or_not_two_processes_end_with_the_same_average(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_training(tiny_corpus, whole, AVERAGED, processes=2).returncode == 0
    signal_training_when("step 6: dev BLEU", signal.SIGKILL, tiny_corpus, killed, AVERAGED, processes=2)
    assert run_training(tiny_corpus, killed, AVERAGED, processes=2).returncode == 0
    for name in (MODEL_FILE, OPTIMIZER_FILE, UNAVERAGED_FILE):
        ends = [(run / f"checkpoints/step-{STEPS:08d}" / name).read_bytes() for run in (whole, killed)]
        assert ends[0] == ends[1], name
    # Each process has measured the half of dev with an average of its own.
    run = Run.open(whole)
    best = choose_checkpoint(run, "best")
    alone = evaluate_run(run, corpus=tiny_corpus, checkpoint=best, split="dev")
    [told] = [
        record
        for record in read_journal(whole / "journal/rank-0.jsonl")
        if record["kind"] == "evaluated" and record["step"] == best.step
    ]
    assert told["eval_loss"] == pytest.approx(alone.eval_loss, rel=1e-6)
    assert told["bleu"] == alone.bleu
