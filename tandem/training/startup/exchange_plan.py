"""The exchange strategy of a session: the one the run has begun with, the one asked for, or the best by measurement."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch

from tandem.cluster.exchange.choose_strategy import StepCosts, StrategyChoice, asked_plan, choose
from tandem.cluster.exchange.gradient_reducer import bucket_shares
from tandem.cluster.exchange.link_probe import SumCosts, measure_sums
from tandem.cluster.exchange.strategy import (
    ExchangePlan,
    Shapes,
    find_strategy,
    may_keep_state,
    usable_strategies,
    values_in,
)
from tandem.cluster.world import World
from tandem.config import Config
from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.model.translation_model import build_model, frozen_names
from tandem.storage import read_json, write_json
from tandem.training.batches import Batches
from tandem.training.startup.calibration import Calibration, calibrate
from tandem.training.train_state import TrainState

# A user waits for these at every start of a run: seconds for each strategy's sums, and for steps without exchange.
SECONDS_A_SUM, CALIBRATION_SECONDS = 0.6, 1.5
# Backward multiplies every matrix twice, forward once.
BACKWARD_SHARE = 2 / 3


def plan_exchange(config: Config, world: World, state: TrainState, batches: Batches, run: RunPaths) -> StrategyChoice:
    """The plan of this session, the same on all processes; a measured one is kept for the next session."""
    hosts, keeps_state = len(world.hosts), may_keep_state(config)
    asked = asked_plan(config.exchange, hosts)
    if asked is not None:
        return StrategyChoice(asked, str(asked) if hosts > 1 else "nothing crosses a network", {})
    begun = world.broadcast(world.together(lambda: read_begun(run) if world.is_leader else {}))
    if begun.get("hosts") == hosts and begun.get("remembers") == keeps_state:
        plan = ExchangePlan(begun["kind"], begun["local_steps"])
        return StrategyChoice(plan, f"{plan}, as the run has begun", {})
    shapes = list(state.flat.shapes.values())
    weighed = [each for each in usable_strategies(config) if each.auto_order is not None]
    sums = measure_sums(world, shapes, config.exchange, weighed, SECONDS_A_SUM)
    calibration = calibrate(config, world, batches, state.model.vocab_size, CALIBRATION_SECONDS)
    choice = choose(step_costs(config, world.size, calibration, shapes, sums))
    kept = {"hosts": hosts, "remembers": keeps_state, **asdict(choice.plan), "reason": choice.reason}
    world.together(lambda: write_json(run.exchange_file, kept) if world.is_leader else None)
    return choice


def step_costs(config: Config, processes: int, calibration: Calibration, shapes: Shapes, sums: SumCosts) -> StepCosts:
    """What a choice is made from, for a gradient of these shapes."""
    micro_batches = math.ceil(config.batch.micro_batches / processes)
    return StepCosts(
        link=sums.link,
        sum_seconds=sums.seconds(values_in(shapes)),
        together_seconds=calibration.together_seconds,
        apart_seconds=calibration.apart_seconds,
        backward_seconds=BACKWARD_SHARE * calibration.together_seconds / micro_batches,
        buckets=bucket_shares(shapes),
        may_keep_state=may_keep_state(config),
        settings=config.exchange,
    )


def gradient_shapes(config: Config, vocab_size: int) -> Shapes:
    """Shapes of the parameters that are trained, in the order of the flat gradient, without making them."""
    with torch.device("meta"):
        model = build_model(config.model, vocab_size)
    frozen = frozen_names(model, config.optimizer.freeze)
    return [model.get_parameter(name).shape for name in model.parameter_order() if name not in frozen]


def read_begun(run: RunPaths) -> dict[str, Any]:
    """The plan that an earlier session has kept; nothing if there was none."""
    if not run.exchange_file.is_file():
        return {}
    try:
        begun = read_json(run.exchange_file)
        kinds = {"hosts": int, "remembers": bool, "kind": str, "local_steps": int}
        if wrong := [name for name, kind in kinds.items() if type(begun.get(name)) is not kind]:
            raise ValueError(f"{wrong[0]} is {begun.get(wrong[0])!r}")
        if begun["local_steps"] < 1:
            raise ValueError(f"local_steps is {begun['local_steps']}")
        find_strategy(begun["kind"])
    except (ValueError, TandemError) as error:
        raise TandemError(f"{run.exchange_file}: damaged ({error}); remove it, and it is measured anew") from error
    return begun
