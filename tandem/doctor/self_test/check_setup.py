"""What every check works with: this process's card, the settings fitted to it, and trainings on made-up sentences."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from tandem.cards import native_precision
from tandem.cluster.devices import LocalGpu, gpu_of
from tandem.cluster.exchange.exchange import NoExchange
from tandem.cluster.exchange.link_probe import slowest_seconds
from tandem.cluster.exchange.strategies.allreduce import AllReduce
from tandem.cluster.world import World
from tandem.config import Config
from tandem.doctor.measure import Sentences
from tandem.model.memory_estimate import largest_tokens
from tandem.monitor.device_clock import synchronize
from tandem.monitor.step_clock import StepClock
from tandem.training.data_loader import make_loader
from tandem.training.startup.auto_settings import PRECISIONS_BY_RANK, common_precision
from tandem.training.step import Stepper
from tandem.training.step_result import StepResult
from tandem.training.train_state import TrainState

# Steps in which buffers are made and libraries choose their kernels.
WARM_UP = 3
# Fewer say little about steps of different lengths, more nothing new.
FEWEST_STEPS, MOST_STEPS = 3, 200


@dataclass(frozen=True)
class Setup:
    """Card, settings and sentences that are handed to every check."""

    world: World
    card: LocalGpu
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
        card, auto, batch = gpu_of(world.device), common_precision(world), config.batch
        assert card is not None, "somebody has looked for a card before"
        precision = auto if config.train.precision == "auto" else config.train.precision
        config = config.with_settings("train", precision=precision).with_settings("model", compile="off")
        wished = batch.step_tokens if batch.tokens == "auto" else batch.tokens
        fitting = max(largest_tokens(config, sentences.vocabulary, card.memory_bytes), config.model.max_length)
        tokens = int(-world.largest(-min(wished, fitting)))
        # As many for each process.
        micro_batches = math.ceil(batch.micro_batches / world.size) * world.size
        config = config.with_settings("batch", tokens=tokens, micro_batches=micro_batches)
        return cls(world, card, config, auto, sentences, seconds)

    @property
    def device(self) -> torch.device:
        return self.world.device

    def can_compute(self, precision: str) -> bool:
        """Whether this process's card has hardware for a number format."""
        best = native_precision(self.card.capability)
        return PRECISIONS_BY_RANK.index(precision) >= PRECISIONS_BY_RANK.index(best)


class CheckTraining:
    """A warmed-up training on made-up sentences, with everything that `tandem train` steps with.

    Each process trains by itself in steps of one micro-batch, or all of them `together`.
    """

    def __init__(self, setup: Setup, *, together: bool = False, compiled: bool = False) -> None:
        self._world = setup.world if together else World(0, 1, setup.device)
        config = setup.config if together else setup.config.with_settings("batch", micro_batches=1)
        self.config = config.with_settings("model", compile="on" if compiled else "off")
        self.state = TrainState.fresh(self.config, setup.sentences.vocabulary, setup.device)
        vectors = self.state.flat_vectors()
        exchange = AllReduce(vectors, self._world) if together else NoExchange(vectors, setup.device)
        self._loader = make_loader(setup.sentences.batches(self.config), self._world)
        self._clock = StepClock(setup.device)
        self._stepper = Stepper(self.config, self._world, self.state, self._loader, self._clock, exchange)
        self._step = 0
        start = time.perf_counter()
        self.take(WARM_UP)
        self.warm_up_seconds = time.perf_counter() - start

    def take(self, steps: int) -> list[StepResult]:
        """Take so many steps and wait for the last; their results."""
        results = []
        for _ in range(steps):
            results += self._stepper.step(self._loader.fetch(self._step + 1))
            self._step += 1
        results += self._stepper.flush()
        synchronize(self._world.device)
        # What the clock has kept of every step would only grow.
        self._clock.lap()
        return results

    def timed(self, steps: int) -> tuple[float, list[StepResult]]:
        """Seconds of a step in so many of them on the slowest process, and their results."""
        results: list[StepResult] = []
        seconds = slowest_seconds(self._world, lambda: results.extend(self.take(steps)))
        assert len(results) == steps, "every step has a result"
        return seconds / steps, results

    def timed_for(self, seconds: float) -> tuple[float, list[StepResult]]:
        """The same for as many steps as there is time for, by two of them; on all processes equally many."""
        return self.timed(min(max(int(seconds / self.timed(2)[0]), FEWEST_STEPS), MOST_STEPS))
