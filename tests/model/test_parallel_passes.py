"""What running passes in parallel does to results, random numbers and failures."""

from __future__ import annotations

import threading

import pytest
import torch

from tandem.model.layers import dropout
from tandem.model.parallel_passes import ParallelPasses


def test_results_come_in_order_and_random_numbers_from_each_ones_seed() -> None:
    second_is_done = threading.Event()

    def first() -> torch.Tensor:
        assert second_is_done.wait(60)
        return dropout(torch.ones(64), 0.5, training=True)

    def second() -> torch.Tensor:
        drawn = dropout(torch.ones(64), 0.5, training=True)
        second_is_done.set()
        return drawn

    parallel = ParallelPasses(2).run([first, second], [7, 8])
    alone = [ParallelPasses(1).run([second], [seed])[0] for seed in (7, 8)]
    torch.testing.assert_close(parallel, alone, rtol=0, atol=0)
    assert not torch.equal(*parallel)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_in_any_pass_is_raised_after_all_have_ended(failing: int) -> None:
    threads, ended = torch.get_num_threads(), threading.Event()

    def fail() -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        ParallelPasses(2).run([fail, ended.set] if failing == 0 else [ended.set, fail], [1, 2])
    assert ended.is_set()
    assert torch.get_num_threads() == threads
