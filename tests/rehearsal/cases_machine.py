"""The cards themselves: memory, properties, visibility, NVML, threads."""

from __future__ import annotations

import os
import threading
from unittest.mock import patch

import pynvml
import pytest
import torch

from rehearsal.device import Rehearsal, rehearsed_cuda


def case_memory_is_counted_and_limited(rehearsal: Rehearsal) -> None:
    block = torch.empty(60_000_000, dtype=torch.uint8, device="cuda")
    view = block[10:]
    assert torch.cuda.memory_allocated() == 60_000_256
    with pytest.raises(
        torch.OutOfMemoryError, match=r"Tried to allocate 57.22 MiB. GPU 0 has a total capacity of 95.37"
    ):
        torch.empty_like(block)
    torch.empty(60_000_000, dtype=torch.uint8, device="cuda:1")
    del block
    assert torch.cuda.memory_allocated() == 60_000_256
    del view
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.max_memory_allocated() == 60_000_256
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    assert torch.cuda.mem_get_info() == (100_000_000, 100_000_000)


def case_planned_failure(rehearsal: Rehearsal) -> None:
    rehearsal.fail_allocation(number=2, above_bytes=1000)
    kept = [torch.empty(size, device="cuda") for size in (10, 1000, 10)]
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(1000, device="cuda")
    kept.append(torch.empty(1000, device="cuda"))


def case_properties(rehearsal: Rehearsal) -> None:
    properties = torch.cuda.get_device_properties("cuda:1")
    assert (properties.name, properties.major, properties.total_memory) == ("NVIDIA A100-SXM4-80GB", 8, 100_000_000)
    assert torch.cuda.is_available()
    assert torch.cuda.is_bf16_supported(including_emulation=False)


def case_bfloat16_is_emulated_before_ampere() -> None:
    with rehearsed_cuda(capability=(7, 0), name="Tesla V100-SXM2-16GB"):
        assert torch.cuda.get_device_capability() == (7, 0)
        assert torch.cuda.is_bf16_supported()
        assert not torch.cuda.is_bf16_supported(including_emulation=False)


def case_current_device_is_a_threads_own(rehearsal: Rehearsal) -> None:
    torch.cuda.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(1).to("cuda").device.index))
    thread.start()
    thread.join()
    with torch.cuda.device(0):
        seen.append(torch.cuda.current_device())
    seen.append(torch.ones(1, device="cuda").device.index)
    torch.cuda.set_device(0)
    assert seen == [0, 0, 1]


def _uuids(visible: str, host: str = "alpha") -> list[str]:
    with patch.dict(os.environ, CUDA_VISIBLE_DEVICES=visible, TANDEM_HOST=host), rehearsed_cuda(cards=4):
        return [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]


def case_visible_devices() -> None:
    assert _uuids("0") == _uuids("0")
    assert _uuids("0") != _uuids("1")
    assert _uuids("0") != _uuids("0", host="beta")
    assert _uuids("1,0") == [*_uuids("1"), *_uuids("0")]
    assert len(_uuids("0,9,1")) == 1
    with patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""), rehearsed_cuda(cards=4):
        assert not torch.cuda.is_available()
        assert torch.cuda.device_count() == 0
        with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
            torch.ones(1).to("cuda")


def case_nvml_sees_every_card() -> None:
    with patch.dict(os.environ, CUDA_VISIBLE_DEVICES="2"), rehearsed_cuda(cards=4):
        block = torch.empty(512, dtype=torch.uint8, device="cuda")
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 4
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(2)) == uuid
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).used == block.nbytes
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlDeviceGetHandleByIndex(4)


def case_everything_is_undone() -> None:
    before = (torch.cuda.is_available, torch.Event, torch.nn.functional.scaled_dot_product_attention, pynvml.nvmlInit)
    with rehearsed_cuda():
        assert torch.cuda.is_available()
        assert torch.accelerator.is_available()
    after = (torch.cuda.is_available, torch.Event, torch.nn.functional.scaled_dot_product_attention, pynvml.nvmlInit)
    assert after == before
    assert not torch.cuda.is_available()
    assert not torch.accelerator.is_available()
    with torch.inference_mode():
        assert torch.ones(1).is_inference()
