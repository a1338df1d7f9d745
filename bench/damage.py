"""Damaged checkpoints: random truncations and bit flips over all files, and whether each is noticed.

    python -m bench.damage --checkpoints 1000

Every trial damages the newest of two checkpoints of a run at one random place and looks for the one to continue from,
as a training does. It is noticed if that is the older one; silent if it is the damaged one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import torch

from tandem.cluster.world import World
from tandem.config import CheckpointConfig, Config
from tandem.training.checkpoints.checkpoint_store import WritableCheckpointStore
from tandem.training.checkpoints.resume import find_checkpoint
from tandem.training.train_state import TrainState

ALONE = World(0, 1, torch.device("cpu"), host_names=("here",))
SETTINGS = ("model.d_model=32", "model.heads=2", "model.d_ff=64", "train.precision=float32")


def saved_run(directory: Path) -> None:
    """A run with checkpoints of two steps."""
    state = TrainState.fresh(Config.load("demo", SETTINGS), 600, ALONE.device)
    store = WritableCheckpointStore(directory, CheckpointConfig())
    for _ in range(2):
        for parameter in state.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        state.optimizer.step()
        state.progress.step += 1
        store.saving(state)()


def damage(file: Path, chance: random.Random) -> str:
    """Cut a file short, or flip one of its bits, anywhere; the name of what was done."""
    content = bytearray(file.read_bytes())
    place = chance.randrange(len(content))
    if chance.random() < 0.5:
        file.write_bytes(content[:place])
        return "cut short"
    content[place] ^= 1 << chance.randrange(8)
    file.write_bytes(content)
    return "bit flipped"


def trial(run: Path, scratch: Path, chance: random.Random) -> tuple[str, bool]:
    """Damage a copy of the run; what was damaged, and whether it was noticed."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(run, scratch)
    newest = scratch / "checkpoints/step-00000002"
    file = chance.choice(sorted(newest.iterdir()))
    done = damage(file, chance)
    said: list[str] = []
    store = WritableCheckpointStore(scratch, CheckpointConfig())
    found = find_checkpoint(ALONE, store, lambda step: True, said.append)
    noticed = found is not None and found.step == 1 and len(said) == 1 and not newest.exists()
    return f"{file.name}, {done}", noticed


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--checkpoints", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    chance = random.Random(options.seed)
    made: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "run")
        saved_run(run)
        for _ in range(options.checkpoints):
            what, noticed = trial(run, Path(directory, "scratch"), chance)
            made[what] += 1
            silent[what] += not noticed
    for what, count in sorted(made.items()):
        print(f"{what:40} {count:5} damaged, {count - silent[what]:5} noticed")
    print(f"{sum(made.values()):,} damaged checkpoints: {sum(silent.values())} silent")


if __name__ == "__main__":
    main()
