"""What every check works with: this process's card, the settings fitted to it, and trainings on made-up sentences."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from tandem.cluster.devices import Card, card_of
from tandem.cluster.exchange import AllReduce, Alone
from tandem.cluster.instants import finish
from tandem.cluster.world import World
from tandem.config import Config
from tandem.doctor.measure import Sentences
from tandem.model.memory_estimate import largest_tokens
from tandem.monitor.clock import Clock
from tandem.train.choices import common_precision
from tandem.train.feeder import make_feeder
from tandem.train.state import TrainState
from tandem.train.step import Stepper, StepResult

# Steps in which buffers are made and libraries choose their kernels.
WARM_UP = 3
# Fewer say little about steps of different lengths, more nothing new.
FEWEST_STEPS, MOST_STEPS = 3, 200


@dataclass(frozen=True)
class Setup:
    """Handed to every check."""

    world: World
    card: Card
    """Of this process."""
    config: Config
    """Nothing is left to `auto`: the precision that it takes here, micro-batches that the smallest card holds."""
    auto_precision: str
    """What `train.precision: auto` takes on these cards."""
    sentences: Sentences
    seconds: float
    """How long each measurement of speed may take."""

    @classmethod
    def of(cls, config: Config, world: World, sentences: Sentences, seconds: float) -> Setup:
        """Settle what the settings leave open; all processes together."""
        card = card_of(world.device)
        assert card is not None, "somebody has looked for a card before"
        auto = common_precision(world)
        fitted = _fitted(config, world, auto, sentences.vocabulary, card)
        return cls(world, card, fitted, auto, sentences, seconds)

    @property
    def device(self) -> torch.device:
        return self.world.device

    def alone(self, **model: str) -> Config:
        """The settings of a training that this process does by itself: steps of one micro-batch."""
        batch = self.config.batch.model_copy(update={"micro_batches": 1})
        changed = self.config.model.model_copy(update=model)
        return self.config.model_copy(update={"batch": batch, "model": changed})


def _fitted(config: Config, world: World, auto: str, vocabulary: int, card: Card) -> Config:
    """The settings with every `auto` settled."""
    precision = auto if config.train.precision == "auto" else config.train.precision
    train, batch = config.train.model_copy(update={"precision": precision}), config.batch
    model = config.model.model_copy(update={"compile": "off"})
    config = config.model_copy(update={"train": train, "model": model})
    wished = batch.step_tokens if batch.tokens == "auto" else batch.tokens
    fitting = max(largest_tokens(config, vocabulary, card.memory_bytes), model.max_length)
    tokens = int(-world.largest(-min(wished, fitting)))
    # As many for each process.
    each = -(-batch.micro_batches // world.size)
    batch = batch.model_copy(update={"tokens": tokens, "micro_batches": each * world.size})
    return config.model_copy(update={"batch": batch})


class Training:
    """A training on made-up sentences, with everything that `tandem train` steps with."""

    def __init__(self, setup: Setup, config: Config, *, alone: bool) -> None:
        world = World(0, 1, setup.device) if alone else setup.world
        self._world, self._step = world, 0
        self.state = TrainState.fresh(config, setup.sentences.vocabulary, world.device)
        trained = self.state.trained()
        exchange = Alone(trained, world.device) if alone else AllReduce(trained, world)
        self._feeder = make_feeder(setup.sentences.batches(config), world)
        self._clock = Clock(world.device)
        self._stepper = Stepper(config, world, self.state, self._feeder, self._clock, exchange)

    def take(self, steps: int) -> list[StepResult]:
        """Take so many steps and wait for the last; their results."""
        results = []
        for _ in range(steps):
            results += self._stepper.take(self._feeder.fetch(self._step + 1))
            self._step += 1
        results += self._stepper.settle()
        finish(self._world.device)
        # What the clock has kept of every step would only grow.
        self._clock.lap()
        return results

    def timed(self, steps: int) -> tuple[float, list[StepResult]]:
        """Seconds that so many steps take on the slowest process, and their results."""
        self._world.meet()
        start = time.perf_counter()
        results = self.take(steps)
        return self._world.largest(time.perf_counter() - start), results

    def steps_in(self, seconds: float) -> int:
        """How many steps there is time for, by two of them; all processes get the same answer."""
        taken, _ = self.timed(2)
        return min(max(int(seconds / (taken / 2)), FEWEST_STEPS), MOST_STEPS)
