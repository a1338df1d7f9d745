"""The reducer: what it does where memory runs out, and what it leaves behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from tandem.cluster.exchange import gradient_reducer as reducer
from tandem.cluster.exchange.exchange import NoExchange
from tandem.config import Config
from tandem.training.train_state import TrainState


@pytest.mark.slow
def test_a_training_that_is_over_leaves_nothing_in_memory(tiny_config: Callable[..., Config]) -> None:
    """Runs try a few steps before they begin: what those held must not stay on the card."""
    device = torch.device("cpu")
    state = TrainState.fresh(tiny_config("train.precision=bfloat16"), 100, device)
    exchange = NoExchange(state.flat_vectors(), device)
    left: list[weakref.ref[torch.Tensor]] = [weakref.ref(state.flat.gradient), weakref.ref(state.working.leaves[0][0])]
    del state, exchange
    gc.collect()
    assert [tensor() for tensor in left] == [None, None]


def test_a_bucket_for_which_there_was_no_memory_is_closed_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes wait for every bucket in its turn: none may be passed over."""
    device = torch.device("cpu")
    leaves = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    gradient = torch.full((12,), 9.0)
    monkeypatch.setattr(reducer, "FIRST_BUCKET_BYTES", 1)
    monkeypatch.setattr(reducer, "BUCKET_BYTES", 1)
    adder = reducer.GradientReducer([leaves], gradient, None, device)
    collect = reducer.Bucket.collect
    refused: list[reducer.Bucket] = []

    def full_once(bucket: reducer.Bucket, first: bool, passes: int) -> None:
        if not refused:
            refused.append(bucket)
            for parameter in bucket.copies[0]:
                parameter.grad = None
            raise torch.OutOfMemoryError("CUDA out of memory.")
        collect(bucket, first, passes)

    monkeypatch.setattr(reducer.Bucket, "collect", full_once)
    adder.expect(first=True, exchanges=False, passes=1)
    with pytest.raises(torch.OutOfMemoryError):
        sum(leaf.sum() for leaf in leaves).backward()  # type: ignore[union-attr]
    closed = adder._pass.closed
    adder.finish()
    assert closed == 0
    assert adder._pass.closed == len(leaves)
    assert gradient[8:].tolist() == [0.0] * 4
