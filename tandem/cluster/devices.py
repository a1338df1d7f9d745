"""The device that this process computes on: which of the visible GPUs is its own, and what it can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tandem.allocator import keep_free_memory
from tandem.cards import native_precision
from tandem.errors import TandemError
from tandem.kernel_cache import limit_kernel_cache
from tandem.process_signals import not_interrupted

# This module is the first to import it wherever a run is trained or measured: PyTorch's own C code loses an interrupt
# that comes meanwhile, or dies of it.
with not_interrupted():
    import torch
    import torch.utils.deterministic


@dataclass(frozen=True)
class LocalGpu:
    """An NVIDIA GPU of this host that PyTorch can compute on."""

    uuid: str
    """As NVML and nvidia-smi write it; tells two GPUs of a host apart, however they are numbered."""
    name: str
    memory_bytes: int
    capability: tuple[int, int]


def configure_device(device: torch.device, *, tf32: bool, deterministic: bool) -> None:
    """Set the options for speed or exactness: PyTorch's of a GPU, the allocator's and oneDNN's of a processor."""
    if device.type != "cuda":
        keep_free_memory()
        limit_kernel_cache(torch.get_num_threads())
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
def explain_out_of_memory(remedy: str) -> Iterator[None]:
    """Turn an out-of-memory error of a GPU into a sentence that ends with the remedy."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        # The first sentences say how much was asked for and how much there is; advice about the allocator follows.
        facts = ". ".join(str(error).split(". ")[:3])
        raise TandemError(f"{facts}; {remedy}") from error


def gpu_count() -> int:
    """The number of GPUs that this process may use, as CUDA_VISIBLE_DEVICES and the launcher left them."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def local_device(local_rank: int) -> torch.device:
    """The device that this process computes on; one without a GPU of its own is turned away at the roll call.

    A launcher may show every process one GPU of its own, as Slurm does with --gpus-per-task=1; otherwise all see those
    of the host, and take them in the order of their local ranks.
    """
    visible = gpu_count()
    index = 0 if visible == 1 else local_rank
    if index >= visible:
        return torch.device("cpu")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def best_precision(device: torch.device) -> str:
    """The number format in which a device multiplies fastest without emulation."""
    if (gpu := gpu_of(device)) is not None:
        return native_precision(gpu.capability)
    # A processor without such instructions takes a hundred times as long in bfloat16 as in float32.
    bfloat16 = any(there for name, there in torch.cpu.get_capabilities().items() if "bf16" in name)
    return "bfloat16" if bfloat16 else "float32"


def gpu_of(device: torch.device) -> LocalGpu | None:
    """The GPU behind a device; None for a processor."""
    return _gpu(device.index) if device.type == "cuda" else None


def visible_gpus() -> list[LocalGpu]:
    """The GPUs that this process may use."""
    return [_gpu(index) for index in range(gpu_count())]


def _gpu(index: int) -> LocalGpu:
    found = torch.cuda.get_device_properties(index)
    return LocalGpu(f"GPU-{found.uuid}", found.name, found.total_memory, (found.major, found.minor))
