"""What a run settles at its start where the settings say `auto`: precision, micro-batches, torch.compile.

The choice depends on the cards, so it is made once, by all processes together, and kept with the run: started again,
even on other cards, the run goes on as it began.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from tandem.cluster.devices import best_precision, card_of
from tandem.cluster.exchange import Alone
from tandem.cluster.instants import finish
from tandem.cluster.world import World
from tandem.config import Config, contradictions
from tandem.errors import TandemError
from tandem.files import write_whole
from tandem.model.memory_estimate import estimate_memory, largest_tokens
from tandem.monitor.clock import Clock
from tandem.train.batches import Batches
from tandem.train.feeder import Feeder
from tandem.train.run import RunPaths
from tandem.train.state import TrainState
from tandem.train.step import Stepper

# From the best to the one that every card can compute in.
PRECISIONS_BY_RANK = ("bfloat16", "float16", "float32")
# On a processor, larger micro-batches than this gain nothing.
CPU_TOKENS = 4096
# torch.compile takes a minute or two: a run has to be long enough to earn that back.
STEPS_WORTH_COMPILING = 5000
# Seconds for which each way is timed, after a few steps in which kernels are compiled and buffers made.
TRIAL_SECONDS, TRIAL_WARM_UP = 5.0, 3
# Compiled kernels are only worth their start-up if steps are shorter by this factor at least.
WORTH_COMPILING = 0.95

BatchMaker = Callable[[Config], Batches]
Kept = dict[str, Any]


def settle_choices(
    config: Config, world: World, vocab_size: int, make_batches: BatchMaker, run: RunPaths | None = None
) -> Config:
    """The settings with every `auto` settled, the same on all processes; kept with the run, if there is one."""
    if "auto" not in (config.train.precision, config.batch.tokens, config.model.compile):
        return config
    begun: Kept = json.loads(world.told(json.dumps(world.together(lambda: _begun(run, world.leads))).encode()))
    kept: Kept = {}
    if config.train.precision == "auto":
        kept["precision"] = begun.get("precision") or common_precision(world)
        config = _with(config, "train", precision=kept["precision"])
    if config.batch.tokens == "auto":
        kept["micro_batches"] = _kept_micro_batches(config, world, begun) or _micro_batches(
            config, world, vocab_size, make_batches
        )
        kept["micro_batches_for"] = _basis(config)
        tokens = max(config.batch.step_tokens // kept["micro_batches"], config.model.max_length)
        config = _with(config, "batch", tokens=tokens, micro_batches=kept["micro_batches"])
    if config.model.compile == "auto":
        kept["compile"] = begun.get("compile") or _best_compile(config, world, vocab_size, make_batches)
        config = _with(config, "model", compile=kept["compile"])
    if world.leads and run is not None and kept != begun:
        write_whole(run.choices_file, (json.dumps(kept, indent=2) + "\n").encode())
    # What is fine for one precision may contradict another.
    faults = "; ".join(map(str, contradictions(config)))
    if faults:
        raise world.refusal(f"train.precision=auto took {config.train.precision} on these devices: {faults}")
    return config


def _with(config: Config, section: str, **settings: object) -> Config:
    """The settings with some of one section changed."""
    return config.model_copy(update={section: getattr(config, section).model_copy(update=settings)})


def _begun(run: RunPaths | None, leads: bool) -> Kept:
    """What an earlier session has settled, on the host that has the run."""
    if run is None or not leads or not run.choices_file.is_file():
        return {}
    try:
        found: Kept = dict(json.loads(run.choices_file.read_bytes()))
    except (ValueError, TypeError) as error:
        raise TandemError(f"{run.choices_file}: damaged ({error}); remove it, and it is settled anew") from error
    return found


def _basis(config: Config) -> Kept:
    """What the size of micro-batches follows from, besides the cards."""
    return {
        "step_tokens": config.batch.step_tokens,
        "precision": config.train.precision,
        "max_length": config.model.max_length,
    }


def _kept_micro_batches(config: Config, world: World, begun: Kept) -> int | None:
    """What an earlier session has found, if it still has all it was found for and is enough for all processes."""
    found: int | None = begun.get("micro_batches")
    if found is None or found < world.size or begun.get("micro_batches_for") != _basis(config):
        return None
    return found


def _best_compile(config: Config, world: World, vocab_size: int, make_batches: BatchMaker) -> str:
    worth_trying = world.device.type == "cuda" and config.train.max_steps >= STEPS_WORTH_COMPILING
    return "on" if worth_trying and _compiled_is_faster(config, world, vocab_size, make_batches) else "off"


def common_precision(world: World) -> str:
    """The best precision that all processes' devices compute in natively."""
    mine = PRECISIONS_BY_RANK.index(best_precision(world.device))
    return PRECISIONS_BY_RANK[int(world.largest(mine))]


def _micro_batches(config: Config, world: World, vocab_size: int, make_batches: BatchMaker) -> int:
    """Into how many micro-batches a step of `step_tokens` is cut, each as large as the smallest card holds."""
    step_tokens, card = config.batch.step_tokens, card_of(world.device)
    holds = CPU_TOKENS if card is None else largest_tokens(config, vocab_size, card.memory_bytes)
    holds = max(min(holds, step_tokens), config.model.max_length)
    if card is not None:
        holds = _tried_tokens(config, world, make_batches, vocab_size, holds)
    needed = math.ceil(step_tokens / -world.largest(-holds))
    # Every process gets as many as any other.
    return max(math.ceil(needed / world.size), 1) * world.size


def _tried_tokens(config: Config, world: World, make_batches: BatchMaker, vocab_size: int, tokens: int) -> int:
    """What arithmetic says, or the half of it, and so on, until a step of it really fits into this card's memory."""
    while tokens > config.model.max_length:
        # A step that has to be split does not fit.
        whole = _with(config, "batch", tokens=tokens, micro_batches=1, split_when_full=False)
        whole = _with(whole, "model", compile="off")
        try:
            _step_seconds(whole, world, make_batches(whole), vocab_size, seconds=0.0)
            return tokens
        except (TandemError, torch.OutOfMemoryError):  # in a pass, or in the update
            tokens //= 2
    return config.model.max_length


def _compiled_is_faster(config: Config, world: World, vocab_size: int, make_batches: BatchMaker) -> bool:
    """Whether compiled layers make steps shorter, by enough to earn their start-up back, on the slowest card.

    A compiler that fails is a reason to do without, not to end.
    """
    seconds = {}
    for way in ("off", "on"):
        tried = _with(config, "model", compile=way)
        try:
            mine = _step_seconds(tried, world, make_batches(tried), vocab_size, TRIAL_SECONDS)
        except Exception:  # whatever a compiler raises
            mine = math.inf
        seconds[way] = world.largest(mine)
    return seconds["on"] < WORTH_COMPILING * seconds["off"]


def _step_seconds(config: Config, world: World, batches: Batches, vocab_size: int, seconds: float) -> float:
    """The mean time of steps that this process takes alone on made-up weights, for about so long."""
    alone = World(0, 1, world.device)
    state = TrainState.fresh(config, vocab_size, world.device)
    exchange = Alone(state.trained(), world.device)
    stepper = Stepper(config, alone, state, Feeder(batches, alone), Clock(world.device), exchange)
    for step in range(1, 1 + TRIAL_WARM_UP):
        stepper.take(batches.at(step))
    finish(world.device)
    taken, start = 0, time.perf_counter()
    while not taken or time.perf_counter() - start < seconds:
        taken += 1
        stepper.take(batches.at(TRIAL_WARM_UP + taken))
        finish(world.device)
    return (time.perf_counter() - start) / taken


def check_memory(config: Config, world: World, vocab_size: int) -> None:
    """Refuse a run that cannot fit into its cards, before the first step."""
    card = card_of(world.device)
    if card is None:
        world.together(lambda: None)
        return
    tokens = config.batch.tokens
    assert tokens != "auto"
    # A step in parts needs no more than the shortest micro-batch that there is.
    least = config.model.max_length if config.batch.split_when_full else tokens
    needed = estimate_memory(config.model, vocab_size, least, config.train.precision)

    def refuse() -> None:
        if needed.total <= card.memory_bytes:
            return
        fits = largest_tokens(config, vocab_size, card.memory_bytes)
        remedy = f"batch.tokens={fits} would fit" if fits >= config.model.max_length else "take a smaller model"
        raise TandemError(
            f"{world.host_names[world.host]}: training needs about {needed.total / 1e9:.1f} GB on a GPU, but "
            f"{card.name} has {card.memory_bytes / 1e9:.1f} GB; {remedy}, or take a larger card"
        )

    world.together(refuse)
