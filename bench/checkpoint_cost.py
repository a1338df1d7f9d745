"""What checkpoints cost a training of `small` at its default interval: written while it waits, and in the background.

    python -m bench.checkpoint_cost --text ../shared/corpora/multi30k

Real steps on one process, and both ways of saving in turn. What the training feels of a checkpoint in the background
is the copy, which the step clock charges to `checkpoint`, and steps that take longer while the thread writes. Memory is
the growth of the process while a copy is held.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from tandem.cluster.devices import best_precision
from tandem.cluster.exchange.strategy import ExchangePlan, make_exchange
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.monitor.journal import Journal, Recorder
from tandem.monitor.step_clock import StepClock
from tandem.training.batches import Batches
from tandem.training.checkpoints.background_saves import BackgroundSaves
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.data_loader import make_loader
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState


@dataclass
class Costs:
    """Seconds of each round."""

    step: list[float] = field(default_factory=list)
    in_turn: list[float] = field(default_factory=list)
    """Saving while the training waits."""
    copy: list[float] = field(default_factory=list)
    """Saving in the background, as the step clock sees it."""
    slower: list[float] = field(default_factory=list)
    """By how much the steps took longer during which the thread wrote."""


class Training:
    """A model that takes steps and saves, in either way."""

    def __init__(self, config: Config, corpus: PreparedCorpus, run: Path) -> None:
        world = World(0, 1, torch.device("cpu"), host_names=("here",))
        batches = Batches.of_run(config, corpus.pairs("train"))
        self.state = TrainState.fresh(config, corpus.tokenizer.vocab_size, world.device)
        self.clock = StepClock(world.device)
        plan = ExchangePlan("allreduce")
        exchange = make_exchange(plan, config, self.state.flat_vectors(), world)
        self.stepper = Stepper(config, world, self.state, make_loader(batches, world), self.clock, exchange)
        self.store = WritableCheckpointStore(run, config.checkpoint)
        kept = ExchangeState(run, world, plan, config.exchange, config.checkpoint.keep_last)
        recorder = Recorder(Journal(run / "journal", 0))
        self.saves = BackgroundSaves(world, self.store, kept, Mirror(run, config.checkpoint, world), recorder, 0)

    def step(self) -> float:
        start = time.perf_counter()
        self.stepper.step(self.stepper.loader.fetch(self.state.progress.step + 1))
        return time.perf_counter() - start

    def round(self, steps: int, costs: Costs) -> None:
        usual = [self.step() for _ in range(steps)]
        costs.step += usual
        start = time.perf_counter()
        self.store.saving(self.state)()
        costs.in_turn.append(time.perf_counter() - start)
        self.clock.lap()
        with self.clock.measure("checkpoint"):
            self.saves.save(self.state, self.stepper.exchange)
        during = []
        while self.saves.writing:
            during.append(self.step())
        with self.clock.measure("checkpoint"):
            self.saves.settle(goes_on=True)
        costs.copy.append(self.clock.lap()["checkpoint"])
        costs.slower.append(max(0.0, sum(during) - len(during) * statistics.median(usual)))


def memory_of_a_copy(training: Training) -> int:
    """Bytes by which the process grows while a copy is held."""
    process = psutil.Process()
    before = process.memory_info().rss
    writing = training.store.saving(training.state)
    held = process.memory_info().rss - before
    del writing
    return held


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=10, help="Steps of a round before it saves.")
    options = arguments.parse_args()
    # What `auto` comes to on this machine: faster steps make a checkpoint's share larger.
    config = Config.load("small", [f"train.precision={best_precision(torch.device('cpu'))}"])
    with tempfile.TemporaryDirectory() as directory:
        train, dev = ((options.text / f"{name}.en", options.text / f"{name}.de") for name in ("train", "val"))
        corpus = prepare(CorpusTexts([train], dev), Path(directory, "corpus"), config.corpus)
        training, costs = Training(config, corpus, Path(directory, "run")), Costs()
        training.round(3, Costs())
        for _ in range(options.rounds):
            training.round(options.steps, costs)
        saved = training.store.newest(1)[0].size
        held = memory_of_a_copy(training)
    step, every = statistics.median(costs.step), config.checkpoint.every_steps
    interval = step * every
    print(f"small: {saved / 1e6:.0f} MB a checkpoint, every {every} steps of {step:.2f} s")
    in_turn, copy, slower = (statistics.median(seconds) for seconds in (costs.in_turn, costs.copy, costs.slower))
    print(f"in turn:           {in_turn:.3f} s, {in_turn / interval:.2%} of the training")
    print(
        f"in the background: {copy:.3f} s for the copy, {copy / interval:.2%}; steps slower by {slower:.3f} s,", end=" "
    )
    print(f"{(copy + slower) / interval:.2%} in all")
    print(f"memory: {held / 1e6:.0f} MB while a copy is held")


if __name__ == "__main__":
    main()
