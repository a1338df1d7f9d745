"""As many micro-batches in parallel as threads, their number and memory allow."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
import torch

from tandem.config import Config
from tandem.training import parallel_micro_batches
from tandem.training.parallel_micro_batches import count_parallel

GB = 10**9


@pytest.mark.parametrize(
    ("settings", "device", "processes", "memory", "limit", "expected"),
    [
        ((), "cpu", 1, 64 * GB, None, 4),
        (("batch.micro_batches=3",), "cpu", 1, 64 * GB, None, 3),
        ((), "cuda", 1, 64 * GB, None, 1),
        (("model.compile=on",), "cpu", 1, 64 * GB, None, 1),
        (("model.kind=tandem.model.transformer:Transformer",), "cpu", 1, 64 * GB, None, 1),
        # A first micro-batch of transformer-base takes 5.5 GB, another one 4.1, of half of the memory.
        ((), "cpu", 1, 20 * GB, None, 2),
        ((), "cpu", 4, 80 * GB, None, 2),
        ((), "cpu", 1, 64 * GB, 20 * GB, 2),
        ((), "cpu", 1, 1 * GB, None, 1),
    ],
)
def test_as_many_in_parallel_as_threads_micro_batches_and_memory_allow(
    settings: tuple[str, ...],
    device: str,
    processes: int,
    memory: int,
    limit: int | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=memory))
    monkeypatch.setattr(parallel_micro_batches, "memory_limit", lambda: limit)
    config = Config.load("transformer-base", ("batch.tokens=4096", "train.precision=float32", *settings))
    assert count_parallel(config, 32_000, torch.device(device), processes) == expected
