"""Checks of the card itself: driver and libraries, and how fast it multiplies in each number format."""

from __future__ import annotations

import time

import torch

from tandem.cards import FIRST_CAPABILITY_WITH_BFLOAT16, known_card
from tandem.doctor.machine import driver_version
from tandem.doctor.measure import matrix_flops
from tandem.doctor.self_test.check_result import Outcome
from tandem.doctor.self_test.check_setup import Setup
from tandem.training.train_state import PRECISIONS
from tandem.units import size

# Tensor cores multiply TF32 from Ampere on, as they do bfloat16.
TF32_CAPABILITY = FIRST_CAPABILITY_WITH_BFLOAT16
# Square matrices grow until a product takes this long, or to a width at which every card is at its best.
FIRST_WIDTH, LAST_WIDTH, LONG_ENOUGH = 512, 8192, 0.005
# On tensor cores half precision is several times as fast as float32; below this share of it something is broken, not
# just a busy machine.
SLOWEST_SHARE = 0.5


def identity(setup: Setup) -> Outcome:
    """A card that PyTorch can compute on."""
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


def precision(setup: Setup) -> Outcome:
    """What auto takes is not much slower than float32."""
    auto, width = setup.auto_precision, FIRST_WIDTH
    while width < LAST_WIDTH and 2 * width**3 / matrix_flops(setup.device, torch.float32, width) < LONG_ENOUGH:
        width *= 2
    speeds = _tflops(setup, width)
    gain = speeds[auto] / speeds["float32"]
    emulated = not setup.can_compute("bfloat16")
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


def _tflops(setup: Setup, width: int) -> dict[str, float]:
    """10^12 operations a second in the best of several products, all formats in turns: the machine may be busy."""
    formats = dict(PRECISIONS)
    if setup.card.capability >= TF32_CAPABILITY:
        formats["tf32"] = torch.float32
    best = dict.fromkeys(formats, 0.0)
    end = time.perf_counter() + setup.seconds
    try:
        while not all(best.values()) or time.perf_counter() < end:
            for name, dtype in formats.items():
                torch.backends.cuda.matmul.fp32_precision = "tf32" if name == "tf32" else "ieee"
                best[name] = max(best[name], matrix_flops(setup.device, dtype, width) / 1e12)
    finally:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
    return best
