"""torch.Generator(device="cuda") on the rehearsal device."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from rehearsal.session import current

NativeGenerator = torch.Generator
_of_cards: set[int] = set()
"""Addresses of generators that belong to a card; operators see only the C++ half of a generator."""


class Generator(NativeGenerator):
    """torch.Generator while there is a rehearsal; one that claims to be of a card draws on the CPU."""

    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> Generator:
        generator = super().__new__(cls)
        generator._device = torch.device(device)
        if generator._device.type == "cuda":
            generator._device = current().card(device).device
            address = _address(generator)
            _of_cards.add(address)
            weakref.finalize(generator, _of_cards.discard, address).atexit = False
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device


def check_generator(generator: torch.Generator | None) -> None:
    """An operator on CUDA takes CUDA's generators only (check_generator in ATen/core/Generator.h)."""
    if generator is not None and _address(generator) not in _of_cards:
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")


def _address(generator: torch.Generator) -> int:
    address: int = generator._cdata  # type: ignore[attr-defined]
    return address
