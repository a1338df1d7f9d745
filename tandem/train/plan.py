"""Which way of exchanging a run takes: the one it has begun with, the one that was asked for, or the best found."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import torch
import torch.distributed as dist

from tandem.cluster.probe import measure_coding, measure_link
from tandem.cluster.strategies import Choice, Circumstances, Plan, choose
from tandem.cluster.world import World
from tandem.config import Config
from tandem.model.loss import TranslationLoss
from tandem.train.batches import Batches, random_seed
from tandem.train.run import RunPaths, replace_file
from tandem.train.state import PRECISIONS, TrainState

# The first pass through a model is slower than the ones that follow, and a step here and there is disturbed.
TIMED_STEPS = 3


def plan_exchange(config: Config, world: World, state: TrainState, batches: Batches, run: RunPaths) -> Choice:
    """The plan of this session, the same on all processes; what was found out is kept for the next session."""
    hosts = len(world.hosts)
    if hosts == 1:
        return Choice(Plan("allreduce"), "nothing crosses a network", {})
    kind, remembers = config.exchange.kind, config.train.precision != "float16"
    if kind != "auto":
        plan = Plan(kind, config.exchange.local_steps if kind == "diloco" else 1)
        return Choice(plan, str(plan), {})
    begun = json.loads(world.told(_begun(run)))
    if begun.get("hosts") == hosts and begun.get("remembers") == remembers:
        plan = Plan(begun["kind"], begun["local_steps"])
        return Choice(plan, f"{plan}, as the run has begun", {})
    values = sum(parameter.numel() for parameter in state.model.parameters())
    choice = choose(
        config.exchange,
        Circumstances(
            link=measure_link(world),
            hosts=hosts,
            values=values,
            compute_seconds=world.largest(_compute_seconds(config, world, state, batches)),
            coding_seconds=measure_coding(values, world),
            backend=dist.get_backend(),
            remembers=remembers,
        ),
    )
    if world.leads:
        kept = {"hosts": hosts, "remembers": remembers, **asdict(choice.plan), "reason": choice.reason}
        replace_file(run.exchange_file, (json.dumps(kept, indent=2) + "\n").encode())
    return choice


def _begun(run: RunPaths) -> bytes:
    """What an earlier session has found out, on the host that has the run."""
    return run.exchange_file.read_bytes() if run.exchange_file.is_file() else b"{}"


def _compute_seconds(config: Config, world: World, state: TrainState, batches: Batches) -> float:
    """Forward and backward of this process's share of a step, as short as it was seen; nothing of it is kept."""
    module = TranslationLoss(state.model, config.optimizer.label_smoothing)
    state.model.train()
    state.model.compute_dtype = PRECISIONS[config.train.precision]
    shortest = float("inf")
    for step in range(state.progress.step + 1, state.progress.step + 1 + TIMED_STEPS):
        batch = batches.at(step)
        start = time.perf_counter()
        for micro_batch in batch.share(world.rank, world.size):
            torch.manual_seed(random_seed(config.train.seed, step, micro_batch.number))
            objective, _ = module(*batches.tensors(micro_batch, world.device))
            (objective / batch.target_tokens).backward()
        if world.device.type == "cuda":
            torch.cuda.synchronize(world.device)
        shortest = min(shortest, time.perf_counter() - start)
    state.optimizer.zero_grad()
    return shortest
