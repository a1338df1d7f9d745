"""Which way of exchanging a run takes: the one it has begun with, the one that was asked for, or the best found."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

import torch

from tandem.cluster.probe import Sums, measure_sums
from tandem.cluster.strategies import Choice, Circumstances, Plan, bucket_shares, choose
from tandem.cluster.world import World
from tandem.config import Config
from tandem.files import write_whole
from tandem.train.batches import Batches
from tandem.train.calibration import Calibration, calibrate
from tandem.train.run import RunPaths
from tandem.train.state import TrainState

# Nobody waits gladly for a run to begin: each way of summing and the steps for their time may take so long.
SECONDS_A_SUM, CALIBRATION_SECONDS = 0.6, 1.5
# Backward multiplies every matrix twice, forward once.
BACKWARD_SHARE = 2 / 3


def plan_exchange(config: Config, world: World, state: TrainState, batches: Batches, run: RunPaths) -> Choice:
    """The plan of this session, the same on all processes; what was found out is kept for the next session."""
    hosts = len(world.hosts)
    if hosts == 1:
        return Choice(Plan("allreduce"), "nothing crosses a network", {})
    kind, remembers = config.exchange.kind, may_remember(config)
    if kind != "auto":
        plan = Plan(kind, config.exchange.local_steps if kind == "diloco" else 1)
        return Choice(plan, str(plan), {})
    begun = json.loads(world.told(_begun(run)))
    if begun.get("hosts") == hosts and begun.get("remembers") == remembers:
        plan = Plan(begun["kind"], begun["local_steps"])
        return Choice(plan, f"{plan}, as the run has begun", {})
    shapes = list(state.flat.shapes.values())
    sums = measure_sums(world, sum(shape.numel() for shape in shapes), SECONDS_A_SUM)
    calibration = calibrate(config, world, batches, state.model.vocab_size, CALIBRATION_SECONDS)
    choice = choose(config.exchange, circumstances(config, world, calibration, shapes, sums))
    if world.leads:
        kept = {"hosts": hosts, "remembers": remembers, **asdict(choice.plan), "reason": choice.reason}
        write_whole(run.exchange_file, (json.dumps(kept, indent=2) + "\n").encode())
    return choice


def may_remember(config: Config) -> bool:
    """Whether gradients keep their unit from step to step; float16's loss scale changes it."""
    return config.train.precision != "float16"


def circumstances(
    config: Config, world: World, calibration: Calibration, shapes: Sequence[torch.Size], sums: Sums
) -> Circumstances:
    """What a choice is made from, for a gradient of these shapes."""
    micro_batches = math.ceil(config.batch.micro_batches / world.size)
    return Circumstances(
        link=sums.link,
        sum_seconds=sums.seconds(sum(shape.numel() for shape in shapes)),
        together_seconds=calibration.together_seconds,
        apart_seconds=calibration.apart_seconds,
        backward_seconds=BACKWARD_SHARE * calibration.together_seconds / micro_batches,
        buckets=bucket_shares(shapes),
        remembers=may_remember(config),
        deltas=config.exchange.deltas,
    )


def _begun(run: RunPaths) -> bytes:
    """What an earlier session has found out, on the host that has the run."""
    return run.exchange_file.read_bytes() if run.exchange_file.is_file() else b"{}"
