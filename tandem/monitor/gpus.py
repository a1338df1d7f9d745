"""The NVIDIA GPUs of this host, through NVML. Never run on a GPU; without a driver there are none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from tandem.monitor.records import GpuUse

MILLIWATTS = 1000


class Gpus:
    """Reads every GPU's load; a host without a driver has none, and a value that a card does not tell is left out."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._open = False
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._open = True
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def read(self) -> list[GpuUse]:
        uses = []
        for handle in self._handles:
            # A card that falls off the bus in the middle of a run must not take the training with it.
            with suppress(pynvml.NVMLError):
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                uses.append(
                    GpuUse(
                        name=str(pynvml.nvmlDeviceGetName(handle)),
                        utilisation=pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
                        memory_used_bytes=memory.used,
                        memory_total_bytes=memory.total,
                        watts=_watts(pynvml.nvmlDeviceGetPowerUsage, handle),
                        watts_cap=_watts(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
                    )
                )
        return uses

    def close(self) -> None:
        if self._open:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
            self._open, self._handles = False, []


def _watts(ask: Callable[[Any], int], handle: Any) -> float | None:
    """Some cards and virtual machines do not tell their power."""
    try:
        return ask(handle) / MILLIWATTS
    except pynvml.NVMLError:
        return None
