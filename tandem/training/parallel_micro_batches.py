"""How many micro-batches a process works through in parallel: what threads there are for, and memory."""

from __future__ import annotations

import psutil
import torch

from tandem.cluster.control_groups import memory_limit
from tandem.config import Config
from tandem.model.memory_estimate import is_estimated, run_memory

# Of a host's memory, for all processes of a run on it: there may be other programs.
MEMORY_SHARE = 0.5


def count_parallel(config: Config, vocab_size: int, device: torch.device, processes: int) -> int:
    """How many micro-batches are worked through in parallel by each of a host's processes.

    One on a GPU, which has threads enough by itself. One, too, where layers are compiled, which makes them draw from
    the one generator of PyTorch's own, and for a model from outside: it may do so as well, and nobody knows how much
    memory it takes.
    """
    if device.type != "cpu" or config.model.compile == "on" or not is_estimated(config.model):
        return 1
    tokens = config.batch.tokens
    assert tokens != "auto", "resolved at the start"
    one = run_memory(config, vocab_size, tokens)
    # Only weights and optimizer are there once.
    another = one.total - one.weights - one.working_copy - one.optimizer - one.context
    # By all the memory that there is, not by what is free: a run that goes on must round as it did before.
    room = MEMORY_SHARE * min(psutil.virtual_memory().total, memory_limit() or float("inf")) / processes
    fitting = 1 + max(int((room - one.total) / another), 0)
    return min(torch.get_num_threads(), config.batch.micro_batches, fitting)
