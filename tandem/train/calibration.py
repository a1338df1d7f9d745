"""Training steps taken for their time alone: real ones, on weights that are thrown away, without any exchange."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.cluster.exchange import Alone
from tandem.cluster.instants import finish
from tandem.cluster.world import World
from tandem.config import Config
from tandem.monitor.clock import Clock
from tandem.train.batches import Batches, GlobalBatch, MicroBatch
from tandem.train.feeder import Feeder
from tandem.train.state import TrainState
from tandem.train.step import Stepper

# The first passes are slower than those that follow, so a small part of a micro-batch is taken first.
SMALL_PART = 1 / 16
# Fewer steps say little about steps of different lengths; more say nothing new.
FEWEST_STEPS, MOST_STEPS = 3, 24
# Where whole steps take too long, the larger of the two parts that are timed may use this share of the time.
PART_SHARE = 0.4


@dataclass(frozen=True)
class Calibration:
    """How long steps took without any exchange."""

    step_seconds: tuple[tuple[float, ...], ...]
    """Of every process, each step."""
    parts: dict[str, float]
    """Seconds of a step of this process by part, as a log line has them; empty if steps were worked out."""
    worked_out: bool
    """Whether whole steps would have taken too long, and were worked out from parts of a micro-batch."""

    @property
    def together_seconds(self) -> float:
        """A step in which everybody waits for the slowest."""
        slowest: list[float] = [max(seconds) for seconds in zip(*self.step_seconds, strict=True)]
        return statistics.mean(slowest)

    @property
    def apart_seconds(self) -> float:
        """A step in which nobody waits, on the process that is the slowest on the whole."""
        return max(statistics.mean(seconds) for seconds in self.step_seconds)


def calibrate(config: Config, world: World, batches: Batches, vocab_size: int, seconds: float) -> Calibration:
    """Take steps for about so long on every process at once; all get the same answer, save for the parts."""
    state = TrainState.fresh(config, vocab_size, world.device)
    clock = Clock(world.device)
    stepper = Stepper(config, world, state, Feeder(batches, world), clock, Alone(state.trained(), world.device))
    timed = _Timed(stepper, batches, world)
    expected = timed.expected_seconds()
    if FEWEST_STEPS * expected > seconds:
        return Calibration(_of_all(world, [timed.worked_out_seconds(PART_SHARE * seconds)]), {}, worked_out=True)
    # The step that warms up also tells how many there is time for.
    first = world.largest(timed.whole_step(1))
    count = min(max(int(seconds / first), FEWEST_STEPS), MOST_STEPS)
    clock.lap()
    world.meet()
    taken = [timed.whole_step(step) for step in range(2, 2 + count)]
    parts = {part: spent / count for part, spent in clock.lap().items()}
    return Calibration(_of_all(world, taken), parts, worked_out=False)


class _Timed:
    """Takes steps, or small parts of one, and says how long they took."""

    def __init__(self, stepper: Stepper, batches: Batches, world: World) -> None:
        self._stepper, self._batches, self._world = stepper, batches, world
        share = batches.at(1).share(world.rank, world.size)
        self._micro_batch, self._micro_batches = share[0], len(share)

    def whole_step(self, step: int) -> float:
        start = time.perf_counter()
        self._stepper.take(self._batches.at(step))
        return self._since(start)

    def part(self, rows: int) -> float:
        """A step of this process with the first rows of one micro-batch and nothing else."""
        cut = self._micro_batch.rows[:rows]
        tokens = int(self._batches.pairs.read(cut)[1].lengths.sum()) + rows
        # Every process finds its own share at its own place.
        places = [MicroBatch(0, cut, tokens)] * self._world.size
        start = time.perf_counter()
        self._stepper.take(GlobalBatch(1, places))
        return self._since(start)

    def expected_seconds(self) -> float:
        """What a whole step will take on the slowest process, roughly, by small parts of it."""
        self.part(self._rows(SMALL_PART))
        return self._world.largest(self.worked_out_seconds(longest=0.0))

    def worked_out_seconds(self, longest: float) -> float:
        """A whole step by two parts of a micro-batch: what grows with the rows, and what does not.

        The larger part is as large as may be without taking longer than `longest`, but twice the smaller at least.
        """
        few, all_rows = self._rows(SMALL_PART), len(self._micro_batch.rows)
        little = self.part(few)
        many = min(2 * few, all_rows)
        much = self.part(many)
        while 2 * many <= all_rows and 2 * much < longest:
            many *= 2
            much = self.part(many)
        a_row = max(much - little, 0.0) / (many - few) if many > few else little
        return a_row * all_rows * self._micro_batches + max(little - few * a_row, 0.0)

    def _rows(self, part: float) -> int:
        return max(int(part * len(self._micro_batch.rows)), 1)

    def _since(self, start: float) -> float:
        finish(self._world.device)
        return time.perf_counter() - start


def _of_all(world: World, mine: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """What every process has measured, on every process."""
    count = len(mine)
    slots = [0.0] * (world.size * count)
    slots[world.rank * count : (world.rank + 1) * count] = mine
    everybody = world.total(*slots)
    return tuple(tuple(everybody[start : start + count]) for start in range(0, len(everybody), count))
