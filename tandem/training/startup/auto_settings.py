"""What a run chooses at its start where the settings say `auto`: precision, micro-batches, torch.compile.

The choice depends on the cards, so it is made once, by all processes together, and kept with the run: started again,
even on other cards, the run goes on as it began.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tandem.cluster.devices import best_precision, gpu_of
from tandem.cluster.world import World
from tandem.config import Config, contradictions
from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.model.memory_estimate import is_estimated, largest_tokens, run_memory
from tandem.storage import read_json, write_json
from tandem.training.batches import Batches
from tandem.training.startup.calibration import TimedSteps

# Best first; every card can compute in the last.
PRECISIONS_BY_RANK = ("bfloat16", "float16", "float32")
# On a processor, larger micro-batches than this gain nothing.
CPU_TOKENS = 4096
# torch.compile takes a minute or two: a run has to be long enough, and steps shorter by this factor, to earn it back.
STEPS_WORTH_COMPILING, WORTH_COMPILING = 5000, 0.95
# Seconds for which steps are timed, after a few in which kernels are compiled and buffers made.
TRIAL_SECONDS, TRIAL_WARM_UP = 5.0, 3

BatchMaker = Callable[[Config], Batches]
Choices = dict[str, Any]


def resolve_auto_settings(
    config: Config, world: World, vocab_size: int, make_batches: BatchMaker, run: RunPaths | None = None
) -> Config:
    """The settings with every `auto` resolved, the same on all processes; kept with the run, if there is one."""
    if "auto" not in (config.train.precision, config.batch.tokens, config.model.compile):
        return config
    mine = world.together(lambda: read_choices(run) if world.is_leader and run is not None else {})
    before: Choices = world.broadcast(mine)
    chosen: Choices = {}
    if config.train.precision == "auto":
        chosen["precision"] = before.get("precision") or common_precision(world)
        config = config.with_settings("train", precision=chosen["precision"])
    if config.batch.tokens == "auto":
        step_tokens, longest = config.batch.step_tokens, config.model.max_length
        # What the number follows from, besides the cards: an earlier choice for something else is made anew.
        basis = {"step_tokens": step_tokens, "precision": config.train.precision, "max_length": longest}
        count = before.get("micro_batches", 0)
        if count < world.size or before.get("micro_batches_for") != basis:
            count = _micro_batches(config, world, vocab_size, make_batches)
        chosen |= {"micro_batches": count, "micro_batches_for": basis}
        config = config.with_settings("batch", tokens=max(step_tokens // count, longest), micro_batches=count)
    if config.model.compile == "auto":
        chosen["compile"] = before.get("compile") or _best_compile(config, world, vocab_size, make_batches)
        config = config.with_settings("model", compile=chosen["compile"])
    if run is not None and chosen != before:
        world.together(lambda: write_json(run.choices_file, chosen) if world.is_leader else None)
    # What is fine for one precision may contradict another.
    faults = "; ".join(map(str, contradictions(config)))
    if faults:
        raise world.shared_error(f"train.precision=auto took {config.train.precision} on these devices: {faults}")
    return config


def read_choices(run: RunPaths) -> Choices:
    """What an earlier session has chosen."""
    if not run.choices_file.is_file():
        return {}
    try:
        chosen = read_json(run.choices_file)
        known = {"precision": PRECISIONS_BY_RANK, "compile": ("on", "off")}
        if wrong := [name for name, values in known.items() if name in chosen and chosen[name] not in values]:
            raise ValueError(f"{wrong[0]} is {chosen[wrong[0]]!r}")
        # Not a boolean, which Python takes for a number.
        if type(chosen.get("micro_batches", 1)) is not int:
            raise ValueError(f"micro_batches is {chosen['micro_batches']!r}")
    except ValueError as error:
        raise TandemError(f"{run.choices_file}: damaged ({error}); remove it, and it is settled anew") from error
    return chosen


def common_precision(world: World) -> str:
    """The best precision that all processes' devices compute in natively."""
    mine = PRECISIONS_BY_RANK.index(best_precision(world.device))
    return PRECISIONS_BY_RANK[int(world.largest(mine))]


def _micro_batches(config: Config, world: World, vocab_size: int, make_batches: BatchMaker) -> int:
    """Into how many micro-batches a step of `step_tokens` is cut, each as large as the smallest card holds."""
    step_tokens, card = config.batch.step_tokens, gpu_of(world.device)
    holds = CPU_TOKENS if card is None else largest_tokens(config, vocab_size, card.memory_bytes)
    holds = max(min(holds, step_tokens), config.model.max_length)
    if card is not None:
        holds = _tried_tokens(config, world, make_batches, vocab_size, holds)
    needed = math.ceil(step_tokens / -world.largest(-holds))
    # Every process gets as many as any other.
    return max(math.ceil(needed / world.size), 1) * world.size


def _tried_tokens(config: Config, world: World, make_batches: BatchMaker, vocab_size: int, tokens: int) -> int:
    """So many tokens, halved until a step of one such micro-batch fits into this card's memory."""
    while tokens > config.model.max_length:
        # A step that has to be split does not fit.
        whole = config.with_settings("batch", tokens=tokens, micro_batches=1, split_when_full=False)
        whole = whole.with_settings("model", compile="off")
        try:
            trial_step_seconds(whole, world, make_batches(whole), vocab_size, seconds=0.0)
            return tokens
        except (TandemError, torch.OutOfMemoryError):  # in a pass, or in the update
            tokens //= 2
    return config.model.max_length


def _best_compile(config: Config, world: World, vocab_size: int, make_batches: BatchMaker) -> str:
    """Whether compiled layers make steps of a long run shorter by enough to earn their start-up back, on all cards.

    A compiler that fails is a reason to do without, not to end.
    """
    if world.device.type != "cuda" or config.train.max_steps < STEPS_WORTH_COMPILING:
        return "off"
    seconds = {}
    for way in ("off", "on"):
        tried = config.with_settings("model", compile=way)
        try:
            mine = trial_step_seconds(tried, world, make_batches(tried), vocab_size, TRIAL_SECONDS)
        except Exception:  # whatever a compiler raises
            mine = math.inf
        seconds[way] = world.largest(mine)
    return "on" if seconds["on"] < WORTH_COMPILING * seconds["off"] else "off"


def trial_step_seconds(config: Config, world: World, batches: Batches, vocab_size: int, seconds: float) -> float:
    """The mean time of steps that this process takes alone on fresh weights, for about so long."""
    trial = TimedSteps(config, World(0, 1, world.device), batches, vocab_size)
    for step in range(1, 1 + TRIAL_WARM_UP):
        trial.step(step)
    taken: list[float] = []
    while not taken or sum(taken) < seconds:
        taken.append(trial.step(1 + TRIAL_WARM_UP + len(taken)))
    return sum(taken) / len(taken)


def check_memory(config: Config, world: World, vocab_size: int) -> None:
    """Refuse a run that cannot fit into its cards, before the first step."""
    card = gpu_of(world.device)
    if card is None or not is_estimated(config.model):
        world.together(lambda: None)
        return
    tokens = config.batch.tokens
    assert tokens != "auto"
    # A step in parts needs no more than the shortest micro-batch that there is.
    least = config.model.max_length if config.batch.split_when_full else tokens
    needed = run_memory(config, vocab_size, least)

    def refuse() -> None:
        if needed.total <= card.memory_bytes:
            return
        fits = largest_tokens(config, vocab_size, card.memory_bytes)
        remedy = f"batch.tokens={fits} would fit" if fits >= config.model.max_length else "take a smaller model"
        raise TandemError(
            f"training needs about {needed.total / 1e9:.1f} GB on a GPU, but {card.name} has "
            f"{card.memory_bytes / 1e9:.1f} GB; {remedy}, or take a larger card"
        )

    world.together(refuse)
