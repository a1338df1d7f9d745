"""Launches, synchronisations and copies are counted, each synchronisation and copy with its line."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rehearsal.device import RaceError, Rehearsal


def _here(offset: int = 0) -> str:
    """This file and the caller's line."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"cases_counts.py:{frame.f_back.f_lineno + offset}"


def case_views_launch_nothing(rehearsal: Rehearsal) -> None:
    x = torch.empty(4, 4, device="cuda")
    x.view(16)[2:].unsqueeze(0).expand(3, 14).t().detach()
    assert rehearsal.counts.launches.total() == 0


def case_linear_layer(rehearsal: Rehearsal) -> None:
    """One launch forward; backward, two products and the sum for the bias (and the ones that start it)."""
    layer, x = nn.Linear(4, 4).to("cuda"), torch.ones(2, 4, device="cuda", requires_grad=True)
    rehearsal.counts.clear()
    y = layer(x)
    assert rehearsal.counts.launches == {"addmm": 1}
    rehearsal.counts.clear()
    y.backward(torch.ones_like(y))
    assert rehearsal.counts.launches == {"ones_like": 1, "mm": 2, "sum": 1}
    assert rehearsal.counts.synchronisations.total() == 0


def case_attention_is_one_kernel_forward_and_three_backward(rehearsal: Rehearsal) -> None:
    query = torch.ones(1, 1, 64, 8, device="cuda", requires_grad=True)
    rehearsal.counts.clear()
    before = torch.cuda.memory_allocated()
    output = F.scaled_dot_product_attention(query, query, query)
    # The output and a float32 for each query; not the 64 x 64 weights.
    assert torch.cuda.memory_allocated() - before == 64 * 8 * 4 + 64 * 4 + 256
    output.backward(torch.empty_like(output))
    assert rehearsal.counts.launches == {"attention": 1, "attention_backward": 3, "add": 2}


def case_each_wait_for_the_device_is_counted(rehearsal: Rehearsal) -> None:
    x, counts = torch.ones(3, device="cuda"), rehearsal.counts
    waits: dict[str, list[Callable[[], object]]] = {
        "_local_scalar_dense": [lambda: x.sum().item(), lambda: float(x[0]), lambda: bool(x.any()), lambda: int(x[1])],
        "D2H pageable": [lambda: x.tolist(), lambda: x.cpu(), lambda: x.to("cpu")],
        "H2D pageable": [lambda: torch.ones(3).to("cuda", non_blocking=True), lambda: torch.tensor([1], device="cuda")],
        "nonzero": [lambda: x.nonzero()],
        "masked_select": [lambda: x.masked_select(x > 0)],
        "boolean index": [lambda: x[x > 0]],
        "index from the host": [lambda: x[torch.tensor([0, 2])]],
        "equal": [lambda: torch.equal(x, x)],
        "_unique2": [lambda: x.unique()],
        "synchronize": [torch.cuda.synchronize],
        "stream": [lambda: torch.cuda.current_stream().synchronize()],
    }
    for kind, calls in waits.items():
        for call in calls:
            counts.clear()
            call()
            assert [key.rsplit(" ", 1)[0] for key in counts.synchronisations.elements()] == [kind], kind
    counts.clear()
    x[x > 0] = 0  # a masked fill
    assert counts.synchronisations.total() == 0


def case_the_line_is_told(rehearsal: Rehearsal) -> None:
    x = torch.ones(3, device="cuda")
    rehearsal.counts.clear()
    x.sum().item()
    assert rehearsal.counts.synchronisations == {f"_local_scalar_dense {_here(-1)}": 1}
    assert json.loads(rehearsal.counts.to_json())["totals"]["synchronisations"] == 1


def case_pinned_copies_do_not_wait(rehearsal: Rehearsal) -> None:
    pinned = torch.ones(3).pin_memory()
    assert pinned.is_pinned()
    assert not torch.ones(3).is_pinned()
    x = pinned.to("cuda", non_blocking=True)
    landed = x.to("cpu", non_blocking=True)
    rehearsal.cards[0].finish_collectives()
    assert rehearsal.counts.synchronisations.total() == 0
    # Read before the copy has arrived, as a program must not.
    assert math.isnan(landed[0])
    event = torch.Event("cuda")
    event.record()
    event.synchronize()
    assert landed.tolist() == [1.0] * 3
    assert list(rehearsal.counts.synchronisations) == [f"event {_here(-2)}"]
    assert rehearsal.counts.copies.total() == 2


def case_pinned_memory_changed_too_early(rehearsal: Rehearsal) -> None:
    pinned = torch.ones(3).pin_memory()
    pinned.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    pinned.fill_(2)
    pinned.to("cuda", non_blocking=True)
    pinned.fill_(3)
    with pytest.raises(RaceError, match=r"copy of cases_counts.py:\d+ was reading it"):
        torch.cuda.synchronize()


def case_events_keep_the_time(rehearsal: Rehearsal) -> None:
    start, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(3, device="cuda")
    end.record()
    assert isinstance(start, torch.Event)
    assert 0 <= start.elapsed_time(end) < 10_000
    cuda_event = torch.cuda.Event(enable_timing=True)
    cuda_event.record()
    assert cuda_event.query()


def case_float64_is_slow(rehearsal: Rehearsal) -> None:
    x = torch.ones(3, device="cuda")
    x.mul(2)
    assert rehearsal.counts.slow.total() == 0
    x.double().mul(2)
    assert rehearsal.counts.slow == {f"mul {_here(-1)}": 1}


def case_custom_function_in_backward(rehearsal: Rehearsal) -> None:
    """Backward runs on a thread of autograd's; a line of the package there is still found."""

    class Doubling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
            gradient.sum().item()
            return gradient * 2

    x = torch.ones(3, device="cuda", requires_grad=True)
    rehearsal.counts.clear()
    Doubling.apply(x).sum().backward()
    assert rehearsal.counts.synchronisations == {f"_local_scalar_dense {_here(-6)}": 1}
