"""The time of training steps: real ones, without any exchange, on weights that are thrown away."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

from tandem.cluster.exchange.exchange import NoExchange
from tandem.cluster.world import World
from tandem.config import Config
from tandem.monitor.device_clock import synchronize
from tandem.monitor.step_clock import StepClock
from tandem.training.batches import Batches, GlobalBatch, MicroBatch
from tandem.training.data_loader import MicroBatchLoader
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState

# The first passes are slower than those that follow, so a small part of a micro-batch is taken first.
SMALL_PART = 1 / 16
# Fewer steps say little about steps of different lengths; more say nothing new.
FEWEST_STEPS, MOST_STEPS = 3, 24
# Where whole steps take too long, the larger of the two parts that are timed may use this share of the time.
PART_SHARE = 0.4


@dataclass(frozen=True)
class Calibration:
    """Seconds that steps took without any exchange."""

    step_seconds: tuple[tuple[float, ...], ...]
    """For every process, each step."""
    parts: dict[str, float]
    """Seconds of a step of this process by part, as a log line has them; empty if steps were worked out."""
    worked_out: bool
    """Whether whole steps would have taken too long, and were worked out from parts of a micro-batch."""

    @property
    def together_seconds(self) -> float:
        """Seconds of a step in which all processes wait for the slowest."""
        slowest: list[float] = [max(seconds) for seconds in zip(*self.step_seconds, strict=True)]
        return statistics.mean(slowest)

    @property
    def apart_seconds(self) -> float:
        """Seconds of a step in which no process waits, on the slowest process."""
        return max(statistics.mean(seconds) for seconds in self.step_seconds)


def calibrate(config: Config, world: World, batches: Batches, vocab_size: int, seconds: float) -> Calibration:
    """Take steps for about so long on every process at once; all get the same answer, save for the parts."""
    timed = TimedSteps(config, world, batches, vocab_size)
    expected = timed.expected_seconds()
    if FEWEST_STEPS * expected > seconds:
        return Calibration(_gathered(world, [timed.worked_out_seconds(PART_SHARE * seconds)]), {}, worked_out=True)
    # The step that warms up also tells how many there is time for.
    first = world.largest(timed.step(1))
    count = min(max(int(seconds / first), FEWEST_STEPS), MOST_STEPS)
    timed.clock.lap()
    world.barrier()
    taken = [timed.step(step) for step in range(2, 2 + count)]
    parts = {part: spent / count for part, spent in timed.clock.lap().items()}
    return Calibration(_gathered(world, taken), parts, worked_out=False)


class TimedSteps:
    """Takes steps, or small parts of one, on fresh weights and says how many seconds they took."""

    def __init__(self, config: Config, world: World, batches: Batches, vocab_size: int) -> None:
        self._batches, self._world = batches, world
        state = TrainState.fresh(config, vocab_size, world.device, processes=len(world.hosts[world.host]))
        self.clock = StepClock(world.device)
        exchange = NoExchange(state.flat_vectors(), world.device)
        self._stepper = Stepper(config, world, state, MicroBatchLoader(batches, world), self.clock, exchange)
        share = batches.at(1).share(world.rank, world.size)
        self._parallel = min(len(state.working.models), len(share))
        self._rounds, self._rows = math.ceil(len(share) / self._parallel), share[0].rows
        self._few = max(int(SMALL_PART * len(self._rows)), 1)

    def step(self, step: int) -> float:
        return self._timed(self._batches.at(step))

    def expected_seconds(self) -> float:
        """What a whole step will take on the slowest process, roughly, by small parts of it."""
        self._part(self._few)
        return self._world.largest(self.worked_out_seconds(longest=0.0))

    def worked_out_seconds(self, longest: float) -> float:
        """A whole step by two parts of a micro-batch: what grows with the rows, and what does not.

        The larger part is as large as may be without taking longer than `longest`, but twice the smaller at least.
        """
        few, all_rows = self._few, len(self._rows)
        little = self._part(few)
        many = min(2 * few, all_rows)
        much = self._part(many)
        while 2 * many <= all_rows and 2 * much < longest:
            many *= 2
            much = self._part(many)
        a_row = max(much - little, 0.0) / (many - few) if many > few else little
        return a_row * all_rows * self._rounds + max(little - few * a_row, 0.0)

    def _part(self, count: int) -> float:
        """A step of this process with the first rows of a micro-batch and nothing else, in every parallel pass."""
        rows = self._rows[:count]
        tokens = int(self._batches.pairs.read(rows)[1].lengths.sum()) + count
        # Every process finds its own share at its own place.
        return self._timed(GlobalBatch(1, [MicroBatch(0, rows, tokens)] * self._parallel * self._world.size))

    def _timed(self, batch: GlobalBatch) -> float:
        start = time.perf_counter()
        self._stepper.step(batch)
        synchronize(self._world.device)
        return time.perf_counter() - start


def _gathered(world: World, mine: list[float]) -> tuple[tuple[float, ...], ...]:
    """What every process has measured, on every process."""
    return tuple(map(tuple, world.gather(mine)))
