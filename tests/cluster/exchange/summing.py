"""Real processes that sum vectors over gloo, each in the part of a host; what they find is left in files.

One program plays all numbers of hosts, because starting Python and torch takes longer than all the sums.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor

from tandem.cluster.exchange.strategies.bf16 import BFloat16Sum
from tandem.cluster.exchange.strategies.int4 import FourBitSum
from tandem.cluster.exchange.strategies.powersgd import PowerSgdSum
from tandem.cluster.exchange.vector_sum import VectorSum
from tandem.process_exit import end_process

HOSTS = (2, 3, 4)
# One value, less and more than a stretch under one scale, a whole number of stretches for every number of hosts.
LENGTHS = (1, 255, 256, 257, 1000, 12 * 256, 5003)
WHOLE = 12 * 256
MANY_STEPS = 24
# A continuation must look the same for a while after the break.
BREAK, END = 4, 8
# A bias between two matrices, one of them with many columns.
SHAPES = [torch.Size(shape) for shape in ((24, 16), (16,), (8, 40))]
MATRIX_VALUES = sum(shape.numel() for shape in SHAPES)
RANK = 4
LOW_RANK_STEPS = 30
CPU = torch.device("cpu")
# If one process fails, the others do not outlive the test.
PEER_TIMEOUT = timedelta(seconds=60)
SPOILS = {"nan": float("nan"), "inf": float("inf"), "minus_inf": float("-inf")}


def vector(length: int, host: int, step: int = 0) -> Tensor:
    """What a host puts into a sum: values whose size differs from stretch to stretch, as between layers."""
    generator = torch.Generator().manual_seed(1000 * step + host)
    sizes = torch.logspace(-4, 2, length // 64 + 1).repeat_interleave(64)[:length]
    return torch.randn(length, generator=generator) * sizes


def spoilt(name: str, host: int) -> Tensor:
    """A vector that has a value which is no number on host 1."""
    values = vector(1000, host)
    if host == 1:
        values[300] = SPOILS[name]
    return values


def rank_one(host: int) -> Tensor:
    """Matrices that are all multiples of one column times one row, and a bias."""
    generator = torch.Generator().manual_seed(7)
    parts = []
    for shape in SHAPES:
        first, *rest = (torch.randn(size, generator=generator) for size in shape)
        parts.append((torch.outer(first, rest[0]) if rest else first).flatten())
    return torch.cat(parts) * (host + 1)


def full_rank(host: int) -> Tensor:
    """The same matrices in every step, of more than a few columns."""
    return torch.randn(MATRIX_VALUES, generator=torch.Generator().manual_seed(100 + host))


def group() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def makers(length: int) -> dict[str, Callable[[], VectorSum]]:
    return {
        "bf16": lambda: BFloat16Sum(group(), length, CPU),
        "int4": lambda: FourBitSum(group(), length, CPU),
        "powersgd": lambda: PowerSgdSum(group(), SHAPES, RANK, CPU),
    }


def summed(adder: VectorSum, values: Tensor) -> Tensor:
    result = values.clone()
    adder.sum_(result)
    return result


def single_sums(host: int) -> dict[str, Tensor]:
    """One sum with nothing remembered, of every length, and the bytes that it took."""
    found = {}
    for length in LENGTHS:
        for name in ("bf16", "int4"):
            adder = makers(length)[name]()
            found[f"{name}.{length}"] = summed(adder, vector(length, host))
            found[f"{name}.{length}.bytes"] = torch.tensor([adder.pop_sent_bytes(), adder.pop_sent_bytes()])
    for name in ("bf16", "int4"):
        found[f"{name}.zeros"] = summed(makers(1000)[name](), torch.zeros(1000))
        for spoil in SPOILS:
            found[f"{name}.{spoil}"] = summed(makers(1000)[name](), spoilt(spoil, host))
    return found


def many_sums(host: int) -> dict[str, Tensor]:
    """Sums in a row, and what is remembered after the last."""
    adder = makers(1000)["int4"]()
    results = torch.stack([summed(adder, vector(1000, host, step)) for step in range(MANY_STEPS)])
    # Then only zeros: what is remembered still comes out, until nothing is left.
    rest = torch.stack([summed(adder, torch.zeros(1000)) for _ in range(MANY_STEPS)])
    return {"int4.many": results, "int4.rest": rest}


def low_rank_sums(host: int) -> dict[str, Tensor]:
    exact = makers(0)["powersgd"]()
    found = {"powersgd.rank_one": torch.stack([summed(exact, rank_one(host)) for _ in range(6)])}
    for rank in (1, 2, RANK):
        forgiving = PowerSgdSum(group(), SHAPES, rank, CPU)
        found[f"powersgd.zeros.rank_{rank}"] = torch.stack(
            [summed(forgiving, torch.zeros(MATRIX_VALUES)) for _ in range(4)]
        )
    adder = makers(0)["powersgd"]()
    results, sent = [], []
    for _ in range(LOW_RANK_STEPS):
        results.append(summed(adder, full_rank(host)))
        sent.append(adder.pop_sent_bytes())
    found["powersgd.full_rank"] = torch.stack(results)
    found["powersgd.bytes"] = torch.tensor(sent)
    found["powersgd.errors"] = adder.state_tensors()["errors"]
    return found


def continuations(host: int) -> dict[str, Tensor]:
    """The same sums by one that is left alone, one that takes over its memory half-way, and one that forgets it."""
    found = {}
    for name, make in makers(MATRIX_VALUES).items():
        adder, results = make(), []
        for step in range(END):
            if step == BREAK:
                # As a checkpoint does it.
                remembered = load(save({key: tensor.contiguous() for key, tensor in adder.state_tensors().items()}))
            results.append(summed(adder, vector(MATRIX_VALUES, host, step)))
        heir, forgetful = make(), make()
        heir.load_state(remembered)
        for successor, kept in (("heir", heir), ("forgetful", forgetful)):
            later = [summed(kept, vector(MATRIX_VALUES, host, step)) for step in range(BREAK, END)]
            found[f"{name}.{successor}"] = torch.stack(later)
        found[f"{name}.alone"] = torch.stack(results[BREAK:])
        for key, tensor in adder.state_tensors().items():
            found[f"{name}.alone.{key}"] = tensor.clone()
        for key, tensor in heir.state_tensors().items():
            found[f"{name}.heir.{key}"] = tensor.clone()
    return found


def play(hosts: int, host: int, directory: Path) -> None:
    """The part of one host."""
    store = dist.FileStore(str(directory / f"store-{hosts}"), hosts)
    dist.init_process_group("gloo", store=store, rank=host, world_size=hosts, timeout=PEER_TIMEOUT)
    found = {**single_sums(host), **many_sums(host), **low_rank_sums(host), **continuations(host)}
    save_file(found, directory / f"{hosts}-{host}.safetensors")


def found(directory: Path, hosts: int) -> list[dict[str, Tensor]]:
    """What each host has found."""
    return [load_file(directory / f"{hosts}-{host}.safetensors") for host in range(hosts)]


def main(directory: Path) -> int:
    """Play all numbers of hosts one after the other; how many processes failed."""
    failed = 0
    for hosts in HOSTS:
        children = []
        for host in range(hosts):
            # torch is loaded, but nothing of it runs yet that a fork could break.
            child = os.fork()
            if not child:
                play(hosts, host, directory)
                end_process()
            children.append(child)
        failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
