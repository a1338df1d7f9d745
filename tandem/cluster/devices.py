"""The device that this process computes on: which of the visible cards is its own, and what that card can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.utils.deterministic

from tandem.cards import native_precision
from tandem.errors import TandemError


@dataclass(frozen=True)
class Card:
    """An NVIDIA card that PyTorch can compute on."""

    uuid: str
    """As NVML and nvidia-smi write it; tells two cards of a host apart, however they are numbered."""
    name: str
    memory_bytes: int
    capability: tuple[int, int]


def configure_device(device: torch.device, *, tf32: bool, deterministic: bool) -> None:
    """Choose between speed and exactness for all that a GPU computes from here on; a processor has no such choice."""
    if device.type != "cuda":
        return
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    if deterministic:
        # cuBLAS may add up in any order unless its workspaces have a fixed size; it looks when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # It would also fill fresh memory, which nothing here reads before writing.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        # Flash and memory-efficient attention have deterministic backward passes, cuDNN's has none.
        torch.backends.cuda.enable_cudnn_sdp(False)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error is that of a GPU's full memory: PyTorch's own, or one of CUDA's libraries'."""
    texts = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in texts)


@contextmanager
def memory_explained(remedy: str) -> Iterator[None]:
    """Turn a GPU's full memory into a sentence that ends with what to do about it."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        # The first sentences say how much was asked for and how much there is; advice about the allocator follows.
        facts = ". ".join(str(error).split(". ")[:3])
        raise TandemError(f"{facts}; {remedy}") from error


def visible_cards() -> list[Card]:
    """The cards that this process may use, as CUDA_VISIBLE_DEVICES and the launcher left them."""
    if not torch.cuda.is_available():
        return []
    return [card_at(number) for number in range(torch.cuda.device_count())]


def card_at(number: int) -> Card:
    """A visible card by its number."""
    found = torch.cuda.get_device_properties(number)
    return Card(f"GPU-{found.uuid}", found.name, found.total_memory, (found.major, found.minor))


def own_card(local_rank: int, visible: int) -> int | None:
    """The number of the visible card that is this process's own; None if there is none left for it.

    A launcher may show every process one card of its own, as Slurm does with --gpus-per-task=1; otherwise all see the
    cards of the host, and take them in the order of their local ranks.
    """
    if visible == 1:
        return 0
    return local_rank if local_rank < visible else None


def device_of(local_rank: int) -> torch.device:
    """Where this process computes; a process without a card of its own is turned away at the roll call."""
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = own_card(local_rank, visible)
    if number is None:
        return torch.device("cpu")
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def best_precision(device: torch.device) -> str:
    """The number format in which a device multiplies fastest without being asked to emulate anything."""
    card = card_of(device)
    if card is not None:
        return native_precision(card.capability)
    # A processor without such instructions takes a hundred times as long in bfloat16 as in float32.
    bfloat16 = any(there for name, there in torch.cpu.get_capabilities().items() if "bf16" in name)
    return "bfloat16" if bfloat16 else "float32"


def card_of(device: torch.device) -> Card | None:
    """The card behind a device; None for a processor."""
    return card_at(device.index) if device.type == "cuda" else None
