"""Load of the NVIDIA GPUs that a run uses on this host, read through NVML. Never run on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from tandem.monitor.records import GpuUse

MILLIWATTS = 1000
PERCENT = 100
T = TypeVar("T")


@dataclass(frozen=True)
class _Card:
    """A GPU that NVML knows, and what stays the same of it."""

    handle: Any
    uuid: str
    index: int | None
    name: str


class GpuMeter:
    """Reads the load of some of this host's GPUs.

    NVML knows all physical cards of a host, whatever CUDA_VISIBLE_DEVICES or the launcher leave to a process: the ones
    to read are named by their UUIDs. One that NVML does not know, as that of a MIG slice, is passed over.
    """

    def __init__(self, cards: Sequence[str] = ()) -> None:
        self._cards: list[_Card] = []
        self._open = False
        if cards:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                self._open = True
        if self._open:
            found = (_ask(_find, uuid) for uuid in dict.fromkeys(cards))
            self._cards = [card for card in found if card is not None]

    def read(self) -> list[GpuUse]:
        """The load of each card; what it does not report is None, and a card that reports nothing at all is left out.

        A card that falls off the bus in the middle of a run must not take the training, or the other cards, with it.
        """
        return [use for card in self._cards if (use := _use(card)) is not None]

    def close(self) -> None:
        if self._open:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
            self._open, self._cards = False, []


def _find(uuid: str) -> _Card:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return _Card(handle, uuid, _ask(pynvml.nvmlDeviceGetIndex, handle), str(pynvml.nvmlDeviceGetName(handle)))


def _use(card: _Card) -> GpuUse | None:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, card.handle)
    rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, card.handle)
    watts = _ask(pynvml.nvmlDeviceGetPowerUsage, card.handle)
    watts_cap = _ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, card.handle)
    if memory is None and rates is None and watts is None:
        return None
    return GpuUse(
        name=card.name,
        uuid=card.uuid,
        index=card.index,
        utilisation=None if rates is None else rates.gpu / PERCENT,
        memory_used_bytes=None if memory is None else memory.used,
        memory_total_bytes=None if memory is None else memory.total,
        watts=None if watts is None else watts / MILLIWATTS,
        watts_cap=None if watts_cap is None else watts_cap / MILLIWATTS,
    )


def _ask(call: Callable[[Any], T], about: Any) -> T | None:
    """NVML's answer; None where a card or a virtual machine refuses it."""
    try:
        return call(about)
    except pynvml.NVMLError:
        return None
