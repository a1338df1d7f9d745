"""The list of checks, and the runner: every process does them all, and all agree on what was found."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import torch
from pydantic import TypeAdapter

from tandem.cluster.devices import configure_device, gpu_count
from tandem.cluster.join.launchers import process_rank
from tandem.cluster.world import World, joined_world
from tandem.config import Config, dump
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.doctor.measure import sentences
from tandem.doctor.self_test import card_checks, collective_checks, kernel_checks, training_checks
from tandem.doctor.self_test.check_result import CheckResult, Outcome, SelfTest, anonymous, first_line, versions
from tandem.doctor.self_test.check_setup import Setup
from tandem.errors import SaidElsewhereError, TandemError

# A process that failed in the middle of an exchange keeps the others waiting for so long, and no longer.
MESSAGE_SECONDS = 60
# No check takes longer on the slowest card; a compiler may take minutes.
CHECK_SECONDS = 600


class Check(NamedTuple):
    """A function that finds out one thing; the first line of its docstring says what is expected."""

    name: str
    run: Callable[[Setup], Outcome]
    together: bool = False
    """Whether processes exchange messages in it: one that fails leaves the others behind."""

    @property
    def expected(self) -> str:
        function = self.run.func if isinstance(self.run, partial) else self.run
        sentence = (function.__doc__ or "").splitlines()[0].removesuffix(".")
        return sentence[0].lower() + sentence[1:]


CHECKS = (
    Check("card", card_checks.identity),
    *(
        Check(f"kernels, {precision}", partial(kernel_checks.forward_backward, precision=precision))
        for precision in ("float32", "float16", "bfloat16")
    ),
    Check("attention", kernel_checks.attention),
    Check("beam search", kernel_checks.translations),
    Check("NCCL", collective_checks.collectives, together=True),
    Check("NCCL, rate", collective_checks.bandwidth, together=True),
    Check("precision", card_checks.precision),
    Check("determinism", training_checks.determinism),
    Check("training", training_checks.speed, together=True),
    Check("memory", training_checks.memory),
    Check("synchronisations", training_checks.synchronisations),
    Check("torch.compile", training_checks.compiled),
    Check("resume", training_checks.resume),
    Check("out of memory", training_checks.full_memory),
)


def self_test(config: Config, preset: str, seconds: float, progress: ProgressCallback = no_progress) -> SelfTest:
    """Run every check on this process's card; called by one process for each card, under any launcher."""
    _require_card()
    # cuBLAS looks for the workspaces that determinism needs once, at its first product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with joined_world(config.cluster) as world, sentences(config, None) as used:
        world.check_same("the configuration", dump(config))
        configure_device(world.device, tf32=False, deterministic=False)
        setup = Setup.of(config, world, used, seconds)
        if world.size > 1:
            world.group.set_timeout(timedelta(seconds=MESSAGE_SECONDS))
        results: list[CheckResult] = []
        broken = None
        for check in CHECKS:
            progress(check.name, 0, 1)
            if check.together and broken is not None and world.size > 1:
                mine = Outcome.of(False, f"not run, because processes no longer understand each other after {broken}")
            else:
                mine = _outcome(check, setup)
            outcomes = _from_each_rank(world, check.name, mine)
            results.append(CheckResult.of(check.name, check.expected, outcomes))
            if check.together and broken is None and any(outcome.figures.get("raised") for outcome in outcomes):
                broken = check.name
            progress(check.name, 1, 1)
        _leave_together(world)
    return SelfTest(anonymous(preset), world.size, anonymous(versions()), tuple(results))


def _require_card() -> None:
    if gpu_count():
        return
    build = f"PyTorch {torch.__version__}"
    reason = f"{build} was built without CUDA" if torch.version.cuda is None else f"{build} sees none; try nvidia-smi"
    message = f"no NVIDIA card to test: {reason}"
    raise TandemError(message) if process_rank().is_leader else SaidElsewhereError(message)


def _outcome(check: Check, setup: Setup) -> Outcome:
    """What this process has found; a check that raises has failed, and the rest go on."""
    start = time.perf_counter()
    try:
        found = check.run(setup)
    except Exception as error:  # whatever a card, its driver or a compiler may raise
        found = Outcome.of(False, first_line(error), raised=True)
    # What a check has left on the card is not to be the next one's.
    gc.collect()
    torch.cuda.empty_cache()
    return replace(found, found=anonymous(found.found), seconds=time.perf_counter() - start)


def _from_each_rank(world: World, key: str, mine: Outcome) -> list[Outcome]:
    """What each process has found, by rank: over the store that they met at, where nobody's turn can be missed."""
    if world.size == 1:
        return [mine]
    store, form = world.group.get_group_store(), TypeAdapter(Outcome)
    keys = [f"self-test/{key}/{rank}" for rank in range(world.size)]
    store.set(keys[world.rank], form.dump_json(mine).decode())
    store.wait(keys, timedelta(seconds=CHECK_SECONDS))
    return [form.validate_json(store.get(each)) for each in keys]


def _leave_together(world: World) -> None:
    """Let the first process, which may keep the store, stay until the others have read from it what they need."""
    if world.size == 1:
        return
    store = world.group.get_group_store()
    if world.is_leader:
        others = [f"self-test/left/{rank}" for rank in range(1, world.size)]
        store.wait(others, timedelta(seconds=MESSAGE_SECONDS))
    else:
        store.set(f"self-test/left/{world.rank}", "left")
