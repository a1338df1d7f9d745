"""Which strategy a run uses: what each one costs the network, the choice between them, and the making of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from torch import nn

from tandem.cluster.diloco import LocalSteps, Rounds
from tandem.cluster.exchange import AllReduce, Exchange, SumBetweenHosts, SumMaker
from tandem.cluster.network import ring_bytes
from tandem.cluster.probe import Link
from tandem.cluster.sums import VALUES_PER_SCALE, BFloat16Sum, FourBitSum, LowRankSum, Sum
from tandem.cluster.world import World
from tandem.config import Config, ExchangeConfig

# A strategy is hidden if it makes a step at most this much longer.
HIDDEN_SLOW_DOWN = 1.10
# Local steps cost quality (docs/slow-networks.md): four bits in every step are preferred up to this slow-down.
WORTH_QUALITY_SLOW_DOWN = 1.5
# More local steps than this between two exchanges were never shown to keep the quality.
MOST_LOCAL_STEPS = 128
# Bytes for a value of float32 in each number format; four bits share a scale of 16 bits among many values.
BYTES_A_VALUE = {"allreduce": 4.0, "bf16": 2.0, "int4": 0.5 + 2 / VALUES_PER_SCALE}
# Messages that wait for each other in a step: the sum and the vote on stopping; before and within a sum in two
# halves one more each.
ROUND_TRIPS = {"allreduce": 2, "bf16": 4, "int4": 4}
# How much of an all-reduce hides behind the rest of backward: with NCCL at best what is left of it after the first
# bucket, about half of the compute (never run on a GPU); with gloo nothing was seen to hide.
OVERLAPPED_COMPUTE = {"nccl": 0.5, "gloo": 0.0}


@dataclass(frozen=True)
class Plan:
    """The strategy of a run, with how many local steps it takes between two exchanges."""

    kind: str
    local_steps: int = 1

    def __str__(self) -> str:
        return f"{self.kind} with {self.local_steps} local steps" if self.local_steps > 1 else self.kind


@dataclass(frozen=True)
class Circumstances:
    """What was measured before the choice."""

    link: Link
    hosts: int
    values: int
    """Length of the gradient."""
    compute_seconds: float
    """Of a step, on the slowest process."""
    coding_seconds: float
    """To round a gradient to four bits and back, as often as one exchange does."""
    backend: str
    remembers: bool
    """Whether strategies with a memory are open to the run; float16's loss scale forbids them."""

    def exchange_seconds(self, kind: str) -> float:
        """What one exchange between hosts takes, added to a step that hides nothing."""
        sent = ring_bytes(int(self.values * BYTES_A_VALUE[kind]), self.hosts) / self.link.bytes_per_second
        seconds = ROUND_TRIPS[kind] * self.link.latency + sent + (self.coding_seconds if kind == "int4" else 0.0)
        if kind == "allreduce":
            seconds -= OVERLAPPED_COMPUTE[self.backend] * self.compute_seconds
        return max(seconds, 0.0)

    def slow_down(self, plan: Plan) -> float:
        """How many times longer a step is than its compute."""
        kind = "int4" if plan.kind == "diloco" else plan.kind
        return 1 + self.exchange_seconds(kind) / plan.local_steps / self.compute_seconds


@dataclass(frozen=True)
class Choice:
    """A plan, and why."""

    plan: Plan
    reason: str
    slow_downs: dict[str, float]
    """Of every plan that was weighed, mildest first."""


def choose(settings: ExchangeConfig, seen: Circumstances) -> Choice:
    """The mildest plan whose cost stays hidden, or is worth the quality; if there is none, the one that costs least."""
    weighed: dict[Plan, float] = {}
    for plan in _from_mild_to_strong(settings, seen.remembers):
        weighed[plan] = seen.slow_down(plan)
        if weighed[plan] <= (WORTH_QUALITY_SLOW_DOWN if plan.kind == "int4" else HIDDEN_SLOW_DOWN):
            break
    chosen = min(weighed, key=lambda plan: (weighed[plan] > HIDDEN_SLOW_DOWN, weighed[plan]))
    mildest = next(iter(weighed))
    reason = (
        f"{chosen}: the hosts send each other {seen.link.bytes_per_second * 8 / 1e6:,.0f} Mbit/s, so that {mildest} "
        f"makes a step of {seen.compute_seconds:.2g} s {weighed[mildest]:.2f} times as long"
    )
    if chosen != mildest:
        reason += f", this {weighed[chosen]:.2f} times"
    if chosen.kind == "diloco":
        reason += "; it costs some quality (docs/slow-networks.md)"
    return Choice(chosen, reason, {str(plan): slow_down for plan, slow_down in weighed.items()})


def _from_mild_to_strong(settings: ExchangeConfig, remembers: bool) -> Iterator[Plan]:
    """PowerSGD is not among them: at the traffic of local steps it loses more quality (docs/slow-networks.md)."""
    yield Plan("allreduce")
    yield Plan("bf16")
    if remembers:
        yield Plan("int4")
        local_steps = settings.local_steps
        yield Plan("diloco", local_steps)
        while (local_steps := 2 * local_steps) <= MOST_LOCAL_STEPS:
            yield Plan("diloco", local_steps)


def make_exchange(plan: Plan, config: Config, module: nn.Module, world: World) -> Exchange:
    """The strategy at work on a model; on a single host there is nothing to save, so it is always a plain sum."""
    if plan.kind == "allreduce" or len(world.hosts) == 1:
        return AllReduce(module, world)
    settings = config.exchange
    shapes = [parameter.shape for parameter in module.parameters() if parameter.requires_grad]
    values = sum(shape.numel() for shape in shapes)

    def low_rank(group: dist.ProcessGroup) -> Sum:
        return LowRankSum(group, shapes, settings.powersgd_rank, world.device)

    makers: dict[str, SumMaker] = {
        "bf16": partial(BFloat16Sum, length=values, device=world.device),
        "int4": partial(FourBitSum, length=values, device=world.device),
        "powersgd": low_rank,
    }
    if plan.kind != "diloco":
        return SumBetweenHosts(module, world, makers[plan.kind])
    start = settings.start_steps if settings.start_steps is not None else config.schedule.warmup_steps
    return LocalSteps(
        module,
        world,
        settings,
        rounds=Rounds(start, plan.local_steps, config.train.max_steps),
        start_sum=makers["int4"],
        change_sum=makers[settings.deltas],
    )
