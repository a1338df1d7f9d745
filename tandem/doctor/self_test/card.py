"""The card, its driver and libraries; how fast it multiplies in each number format."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tandem.cards import FIRST_CAPABILITY_WITH_BFLOAT16, FIRST_CAPABILITY_WITH_TENSOR_CORES, known_card
from tandem.cluster.instants import finish
from tandem.doctor.machine import driver_version
from tandem.doctor.self_test.result import Outcome
from tandem.doctor.self_test.setup import Setup
from tandem.report.figures import size
from tandem.train.state import PRECISIONS

# Tensor cores multiply TF32 from Ampere on, as they do bfloat16.
TF32_CAPABILITY = FIRST_CAPABILITY_WITH_BFLOAT16
FIRST_CAPABILITY = {
    "float32": (0, 0),
    "float16": FIRST_CAPABILITY_WITH_TENSOR_CORES,
    "bfloat16": FIRST_CAPABILITY_WITH_BFLOAT16,
}
# Square matrices grow until a product takes this long, or to a width at which every card is at its best.
FIRST_WIDTH, LAST_WIDTH, LONG_ENOUGH = 512, 8192, 0.005
# On tensor cores half precision is several times as fast as float32; below this share of it something is broken, not
# just a busy machine.
SLOWEST_SHARE = 0.5


def identity(setup: Setup) -> Outcome:
    """Name, memory, driver and versions."""
    card, known = setup.card, known_card(setup.card.name)
    nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else None  # type: ignore[no-untyped-call]
    versions = {"driver": driver_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    told = "its figures are known" if known else "no figures of it are known, so that nothing is predicted for it"
    capability = ".".join(map(str, card.capability))
    return Outcome.of(
        True,
        f"{card.name}, {size(card.memory_bytes)}, capability {capability}, driver {versions['driver'] or 'not known'}, "
        f"CUDA {versions['cuda']}; {told}",
        name=card.name,
        memory_bytes=card.memory_bytes,
        capability=capability,
        **versions,
        nccl=None if nccl is None else ".".join(map(str, nccl)),
        known_as=None if known is None else known.name,
    )


def can_compute(setup: Setup, precision: str) -> bool:
    """Whether this process's card has hardware for a number format."""
    return setup.card.capability >= FIRST_CAPABILITY[precision]


def precision(setup: Setup) -> Outcome:
    """What `auto` takes, and how fast every format multiplies."""
    auto = setup.auto_precision
    width = _width(setup.device)
    speeds = _tflops(setup, width)
    gain = speeds[auto] / speeds["float32"]
    emulated = not can_compute(setup, "bfloat16")
    told = ", ".join(f"{name} {speed:.3g}" for name, speed in speeds.items())
    return Outcome.of(
        gain >= SLOWEST_SHARE,
        f"auto takes {auto}, {gain:.2f} times float32's speed; TFLOP/s: {told}"
        + ("; bfloat16 is emulated" if emulated else ""),
        auto=auto,
        gain_over_float32=gain,
        bfloat16_emulated=emulated,
        matrix_width=width,
        tflops=speeds,
    )


def _width(device: torch.device) -> int:
    """Large enough that a product is all arithmetic, small enough for many of them."""
    width = FIRST_WIDTH
    while width < LAST_WIDTH and _product_seconds(device, torch.float32, width) < LONG_ENOUGH:
        width *= 2
    return width


def _product_seconds(device: torch.device, dtype: torch.dtype, width: int) -> float:
    """Of one product, after another that warms up."""
    left, right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
    left @ right
    finish(device)
    start = time.perf_counter()
    left @ right
    finish(device)
    return time.perf_counter() - start


def _tflops(setup: Setup, width: int) -> dict[str, float]:
    """10^12 operations a second in the best of several products, all formats in turns: the machine may be busy."""
    best: dict[str, float] = {}
    end = time.perf_counter() + setup.seconds
    while not best or time.perf_counter() < end:
        for name, dtype in PRECISIONS.items():
            best[name] = min(best.get(name, math.inf), _product_seconds(setup.device, dtype, width))
        if setup.card.capability >= TF32_CAPABILITY:
            with _tf32():
                best["tf32"] = min(best.get("tf32", math.inf), _product_seconds(setup.device, torch.float32, width))
    return {name: 2 * width**3 / seconds / 1e12 for name, seconds in best.items()}


@contextmanager
def _tf32() -> Iterator[None]:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
