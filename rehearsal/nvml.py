"""NVML of the rehearsal device: as the real one, it knows every card of the host, visible to CUDA or not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml

from rehearsal.card import card_uuid
from rehearsal.session import Rehearsal

DRIVER = "570.00.00 (rehearsed)"
WATTS, WATTS_LIMIT = 250, 400
"""Power of an A100 at work, and its limit."""
BUSY_PERCENT = 100
MILLIWATTS = 1000


def functions(rehearsal: Rehearsal) -> dict[str, Any]:
    """Stand-ins for functions of pynvml, by name."""
    uuids = [f"GPU-{card_uuid(physical)}" for physical in range(rehearsal.physical_cards)]

    def by_index(index: int) -> int:
        if not 0 <= index < len(uuids):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def by_uuid(uuid: str | bytes) -> int:
        text = uuid.decode() if isinstance(uuid, bytes) else uuid
        if text not in uuids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuids.index(text)

    def memory(handle: int, version: Any = None) -> SimpleNamespace:
        used = sum(card.allocated for card in rehearsal.cards if card.physical == handle)
        total = rehearsal.model.memory_bytes
        return SimpleNamespace(total=total, used=used, free=total - used)

    return {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: DRIVER,
        "nvmlDeviceGetCount": lambda: len(uuids),
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetUUID": lambda handle: uuids[handle],
        "nvmlDeviceGetName": lambda handle: rehearsal.model.name,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=BUSY_PERCENT, memory=0),
        "nvmlDeviceGetPowerUsage": lambda handle: WATTS * MILLIWATTS,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: WATTS_LIMIT * MILLIWATTS,
    }
