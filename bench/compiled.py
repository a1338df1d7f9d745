"""What `model.compile=on` costs and gains on this machine's device.

    python -m bench.compiled [--preset small] [--rounds 6]

Two trainings in one process, on the same made-up sentences, one with compiled layers: the first steps, in which kernels
are compiled, are timed by themselves; then both take turns of a few steps. Needs a C++ compiler on a processor.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from tandem.cluster.devices import best_precision
from tandem.cluster.exchange.strategies.allreduce import AllReduce
from tandem.cluster.world import World
from tandem.config import Config
from tandem.doctor.measure import Sentences, sentences
from tandem.monitor.device_clock import synchronize
from tandem.monitor.step_clock import StepClock
from tandem.training.data_loader import make_loader
from tandem.training.step import Stepper
from tandem.training.train_state import TrainState

STEPS = 5
# In these, the shapes that make torch.compile compile again have all been seen.
WARM_UP_STEPS = 6


class Contender:
    """A training that takes steps when asked to."""

    def __init__(self, preset: str, way: str, used: Sentences) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = Config.load(preset, [f"model.compile={way}", f"train.precision={best_precision(device)}"])
        self._world, self._next = World(0, 1, device), 1
        state = TrainState.fresh(config, used.vocabulary, device)
        loader = make_loader(used.batches(config), self._world)
        exchange = AllReduce(state.flat_vectors(), self._world)
        self._stepper = Stepper(config, self._world, state, loader, StepClock(device), exchange)

    def seconds(self, steps: int) -> float:
        """Of so many steps."""
        start = time.perf_counter()
        for _ in range(steps):
            self._stepper.step(self._stepper.loader.fetch(self._next))
            self._next += 1
        synchronize(self._world.device)
        return time.perf_counter() - start


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default="small")
    arguments.add_argument("--rounds", type=int, default=6)
    options = arguments.parse_args()
    with sentences(Config.load(options.preset), None) as used:
        ways = {way: Contender(options.preset, way, used) for way in ("off", "on")}
        warm_up = {way: contender.seconds(WARM_UP_STEPS) for way, contender in ways.items()}
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, contender in ways.items():
                taken[way].append(contender.seconds(STEPS) / STEPS)
    off, on = (statistics.median(taken[way]) for way in ("off", "on"))
    print(f"{options.preset}: the first {WARM_UP_STEPS} steps take ", end="")
    print(f"{warm_up['off']:.0f} s as they are, {warm_up['on']:.0f} s compiled")
    print(f"a step {off * 1000:.0f} ms as it is, {on * 1000:.0f} ms compiled: {off / on:.2f} times as fast")


if __name__ == "__main__":
    main()
