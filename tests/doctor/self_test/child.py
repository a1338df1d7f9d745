"""A self-test on the rehearsal device with something broken, in a process of its own.

Arguments: `faults` prints, as JSON, what each fault makes of the check that must notice it; `bfloat16` runs the command
with one of them planted, `broadcast` with another between two processes; `lost` lets one of two processes fail in the
middle of an exchange.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

# The device has to be there before PyTorch looks for one.
from rehearsal.device import rehearsed_cuda  # isort: skip

import torch
import torch.distributed as dist

from tandem.cli.command_line import program
from tandem.config import Config
from tandem.doctor.self_test import collective_checks, run_checks, training_checks
from tandem.doctor.self_test.check_result import Outcome
from tandem.doctor.self_test.check_setup import Setup
from tandem.model import layers
from tandem.model.transformer import Transformer
from tandem.training.batches import GlobalBatch
from tandem.training.step import Stepper
from tandem.training.step_result import StepResult
from tandem.training.train_state import TrainState
from tests.doctor.self_test.test_self_test import TINY


def unheeded_mask() -> AbstractContextManager[Any]:
    """bfloat16 attention on the card looks at padding, too."""
    real = layers.attend

    def attend(q: torch.Tensor, *args: Any, mask: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        return real(q, *args, mask=None if q.is_cuda and q.dtype == torch.bfloat16 else mask, **options)

    return patch.object(layers, "attend", attend)


def wrong_positions() -> AbstractContextManager[Any]:
    """Beam search on the card takes every position for the first."""
    real = Transformer.step

    def step(self: Transformer, tokens: torch.Tensor, position: int, *rest: Any) -> torch.Tensor:
        return real(self, tokens, 0 if tokens.is_cuda else position, *rest)

    return patch.object(Transformer, "step", step)


def other_bits() -> AbstractContextManager[Any]:
    """Every training begins with slightly other weights, as if a kernel added up in another order."""
    real, changes = TrainState.fresh, iter(range(1, 100))

    def fresh(*args: Any) -> TrainState:
        state = real(*args)
        state.flat.vector.detach()[0] += 1e-6 * next(changes)
        return state

    return patch.object(TrainState, "fresh", fresh)


def damaged_disk() -> AbstractContextManager[Any]:
    error = OSError("/home/somebody/run/model.safetensors: unreadable")
    return patch.object(training_checks, "read", side_effect=error)


def estimate_of_nothing() -> AbstractContextManager[Any]:
    """The memory estimate forgets everything but a kilobyte."""
    return patch.object(training_checks, "run_memory", lambda *args: SimpleNamespace(total=1000, context=0))


def waiting_host() -> AbstractContextManager[Any]:
    """Every step makes the host wait twice, and CUDA says so, as a build with CUDA does."""
    real, stack = Stepper.step, ExitStack()

    def step(self: Stepper, batch: GlobalBatch) -> list[StepResult]:
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)
        return real(self, batch)

    stack.enter_context(patch.object(torch._C, "_cuda_set_sync_debug_mode", lambda mode: None, create=True))
    stack.enter_context(patch.object(Stepper, "step", step))
    return stack


def silent_broadcast() -> AbstractContextManager[Any]:
    """NCCL's broadcast leaves everybody what it had."""
    real = dist.broadcast

    def broadcast(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        return None if tensor.is_cuda else real(tensor, *args, **options)

    return patch.object(dist, "broadcast", broadcast)


FAULTS = {
    "unheeded mask": ("kernels, bfloat16", unheeded_mask),
    "no flash": ("attention", lambda: patch.object(torch.backends.cuda, "flash_sdp_enabled", lambda: False)),
    "wrong positions": ("beam search", wrong_positions),
    "other bits": ("determinism", other_bits),
    "damaged disk": ("resume", damaged_disk),
    "estimate of nothing": ("memory", estimate_of_nothing),
    "waiting host": ("synchronisations", waiting_host),
}


def only(*names: str) -> AbstractContextManager[Any]:
    """A shorter list of checks."""
    return patch.object(run_checks, "CHECKS", tuple(check for check in run_checks.CHECKS if check.name in names))


def noticed() -> dict[str, Any]:
    """By fault: the result and finding of the check that must notice it, and of one that has nothing to do with it."""
    found = {}
    for fault, (check, plant) in FAULTS.items():
        with only(check, "kernels, float32"), plant():
            results = run_checks.self_test(Config.load("demo", TINY), "demo", 0.2).checks
        found[fault] = {result.name: [result.status, result.found] for result in results}
    return found


def compiled() -> list[str]:
    """What is told of a compiler that works, which the rehearsal device has not: here it leaves layers as they are."""
    with only("torch.compile"), patch.object(Transformer, "compile_layers", lambda self: None):
        (result,) = run_checks.self_test(Config.load("demo", TINY), "demo", 0.2).checks
    return [result.status, result.found]


def fails_on_one(setup: Setup) -> Outcome:
    """One process ends while the other waits for its message."""
    if not setup.world.is_leader:
        raise RuntimeError("something broke here")
    setup.world.barrier()
    return Outcome.of(True, "nobody got here")


def main(case: str, *arguments: str) -> None:
    with rehearsed_cuda(cards=2):
        if case == "faults":
            print(json.dumps({"faults": noticed(), "compiled": compiled()}), flush=True)
            os._exit(0)
        sys.argv = ["tandem", *arguments]
        if case == "bfloat16":
            with unheeded_mask(), only("card", "kernels, bfloat16"):
                program()
        if case == "broadcast":
            with silent_broadcast(), only("card", "NCCL"):
                program()
        broken = run_checks.Check("broken", fails_on_one, together=True)
        after = run_checks.Check("NCCL", collective_checks.collectives, together=True)
        with (
            patch.object(run_checks, "CHECKS", (broken, after, run_checks.CHECKS[0])),
            patch.object(run_checks, "MESSAGE_SECONDS", 3),
        ):
            program()


if __name__ == "__main__":
    main(*sys.argv[1:])
