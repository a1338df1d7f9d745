"""The list of checks, and the runner: every process does them all, and all agree on what was found."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from pydantic import TypeAdapter
from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout

from tandem.cluster.devices import configure_device, visible_cards
from tandem.cluster.launchers import place
from tandem.cluster.world import World, joined_world
from tandem.config import Config, dump
from tandem.doctor.measure import sentences
from tandem.doctor.self_test import card, kernels, messages, recovery, training
from tandem.doctor.self_test.result import FAILED, CheckResult, Outcome, SelfTest, anonymous, merged, versions
from tandem.doctor.self_test.setup import Setup
from tandem.errors import SaidElsewhereError, TandemError

Progress = Callable[[str, int, int | None], None]
# A process that failed in the middle of an exchange keeps the others waiting for so long, and no longer.
MESSAGE_SECONDS = 60
# No check takes longer on the slowest card; a compiler may take minutes.
CHECK_SECONDS = 600
FORM = TypeAdapter(Outcome)


@dataclass(frozen=True)
class Check:
    """One thing to find out."""

    name: str
    expected: str
    """One sentence, for people."""
    run: Callable[[Setup], Outcome]
    together: bool = False
    """Whether processes exchange messages in it: one that fails leaves the others behind."""


def _kernels(precision: str) -> Check:
    return Check(
        f"kernels, {precision}",
        "loss and gradient of a small Transformer as on the CPU, with and without padding",
        partial(kernels.forward_backward, precision=precision),
    )


CHECKS = (
    Check("card", "a card that PyTorch can compute on", card.identity),
    *map(_kernels, ("float32", "float16", "bfloat16")),
    Check("attention", "flash without a mask, efficient with padding, where the card has them", kernels.attention),
    Check("beam search", "the CPU's translations in float32", kernels.translations),
    Check("NCCL", "every collective that exchanges use gives the right values", messages.collectives, together=True),
    Check("NCCL, rate", "an all-reduce of 64 MB comes back", messages.bandwidth, together=True),
    Check("precision", "what auto takes is not much slower than float32", card.precision),
    Check("determinism", "ten steps twice are the same bits with train.deterministic", training.determinism),
    Check("training", "every step's loss is finite", training.speed, together=True),
    Check("memory", "no more than estimated", training.memory),
    Check("synchronisations", "at most one a step", training.synchronisations),
    Check("torch.compile", "compiled layers train", training.compiled),
    Check("resume", "a checkpoint brings back the same bits", recovery.resume),
    Check("out of memory", "the weights stay, and training goes on", recovery.full_memory),
)


def self_test(
    config: Config,
    preset: str,
    seconds: float,
    progress: Progress = lambda _stage, _done, _total: None,
) -> SelfTest:
    """Run every check on this process's card; called by one process for each card, under any launcher."""
    _require_card()
    training.fix_cublas_workspace()
    with joined_world(config.cluster) as world, sentences(config, None) as used:
        world.check_same("the configuration", dump(config))
        configure_device(world.device, tf32=False, deterministic=False)
        setup = Setup.of(config, world, used, seconds)
        if world.size > 1:
            _set_pg_timeout(timedelta(seconds=MESSAGE_SECONDS), dist.group.WORLD)
        results: list[CheckResult] = []
        for check in CHECKS:
            progress(check.name, 0, 1)
            results.append(_result(check, setup, results))
            progress(check.name, 1, 1)
        _leave_together(world)
    return SelfTest(anonymous(preset), world.size, anonymous(versions()), tuple(results))


def _require_card() -> None:
    if visible_cards():
        return
    build = f"PyTorch {torch.__version__}"
    reason = f"{build} was built without CUDA" if torch.version.cuda is None else f"{build} sees none; try nvidia-smi"
    message = f"no NVIDIA card to test: {reason}"
    raise TandemError(message) if place().leads else SaidElsewhereError(message)


def _result(check: Check, setup: Setup, before: Sequence[CheckResult]) -> CheckResult:
    """What all processes have found, on every one of them."""
    together = {each.name for each in CHECKS if each.together}
    broken = next((done.name for done in before if done.name in together and _raised(done)), None)
    if check.together and broken is not None and setup.world.size > 1:
        mine = Outcome.of(False, f"not run, because processes no longer understand each other after {broken}")
    else:
        mine = _outcome(check, setup)
    said = _from_each_rank(setup.world, f"{len(before)}", FORM.dump_json(mine).decode())
    return merged(check.name, check.expected, [FORM.validate_json(each) for each in said])


def _outcome(check: Check, setup: Setup) -> Outcome:
    """What this process has found; a check that raises has failed, and the rest go on."""
    start = time.perf_counter()
    try:
        found = check.run(setup)
    except Exception as error:  # whatever a card, its driver or a compiler may raise
        line = (str(error).strip().splitlines() or [""])[0]
        found = Outcome(FAILED, f"{type(error).__name__}: {line}", {"raised": True})
    # What a check has left on the card is not to be the next one's.
    gc.collect()
    torch.cuda.empty_cache()
    return replace(found, found=anonymous(found.found), seconds=time.perf_counter() - start)


def _raised(result: CheckResult) -> bool:
    return any(outcome.figures.get("raised") for outcome in result.by_rank)


def _from_each_rank(world: World, key: str, mine: str) -> list[str]:
    """What each process says, by rank: over the store that they met at, where nobody's turn can be missed."""
    if world.size == 1:
        return [mine]
    store = _get_default_store()
    keys = [f"self-test/{key}/{rank}" for rank in range(world.size)]
    store.set(keys[world.rank], mine)
    store.wait(keys, timedelta(seconds=CHECK_SECONDS))
    return [store.get(each).decode() for each in keys]


def _leave_together(world: World) -> None:
    """Let the first process, which may keep the store, stay until the others have read from it what they need."""
    if world.size == 1:
        return
    store = _get_default_store()
    if world.leads:
        others = [f"self-test/left/{rank}" for rank in range(1, world.size)]
        store.wait(others, timedelta(seconds=MESSAGE_SECONDS))
    else:
        store.set(f"self-test/left/{world.rank}", "left")
