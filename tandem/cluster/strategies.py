"""Which strategy a run uses: what each one costs the network, the choice between them, and the making of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from tandem.cluster.diloco import LocalSteps, Rounds
from tandem.cluster.exchange import SAMPLED_EVERY, AllReduce, Exchange, SumBetweenHosts, SumMaker, Trained
from tandem.cluster.probe import Link
from tandem.cluster.reducer import bucket_lengths
from tandem.cluster.sums import BFloat16Sum, FourBitSum, LowRankSum, Sum
from tandem.cluster.world import World
from tandem.config import Config, ExchangeConfig

# A strategy is hidden if it makes a step at most this much longer.
HIDDEN_SLOW_DOWN = 1.10
# Local steps cost quality (docs/slow-networks.md): four bits in every step are preferred up to this slow-down.
WORTH_QUALITY_SLOW_DOWN = 1.5
# More local steps than this between two exchanges were never shown to keep the quality.
MOST_LOCAL_STEPS = 128
# Small messages that a step waits for beside the sum: a vote, which is also the meeting before a sum after backward. A
# round of local steps votes on failures, too, and meets before its sum.
SMALL_MESSAGES = {"allreduce": 1, "bf16": 1, "int4": 1, "powersgd": 1, "diloco": 3}


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
    sum_seconds: Mapping[str, float]
    """Of one sum of the gradient over the hosts in each way, coding included."""
    together_seconds: float
    """Of a step without any exchange, if everybody waits for the slowest in each."""
    apart_seconds: float
    """Of such a step, if nobody waits: on the process that is the slowest on the whole."""
    backward_seconds: float
    """Of a process's last micro-batch in a step, behind which an all-reduce can hide."""
    buckets: tuple[float, ...]
    """Shares of the gradient that an all-reduce sends one after the other, as backward comes to them."""
    remembers: bool
    """Whether strategies with a memory are open to the run; float16's loss scale forbids them."""
    deltas: str = "int4"
    """The way in which changes of the weights are summed."""

    def exchange_seconds(self, kind: str) -> float:
        """What one exchange between hosts adds to the step that it is part of."""
        seconds = self.sum_seconds[self.deltas if kind == "diloco" else kind]
        if kind == "allreduce":
            seconds += (self._exposed_seconds(seconds) - seconds) * (1 - 1 / SAMPLED_EVERY)
        return seconds + SMALL_MESSAGES[kind] * self.link.latency

    def _exposed_seconds(self, seconds: float) -> float:
        """What of an all-reduce is left after backward: a bucket waits for its gradients, and for the one before."""
        ready = done = 0.0
        for share in self.buckets:
            # Backward comes to as many weights in a second at its end as at its beginning, roughly.
            ready += share * self.backward_seconds
            done = max(done, ready) + share * seconds
        return done - ready

    def step_seconds(self, plan: Plan) -> float:
        """What a step takes on the average."""
        computing = self.apart_seconds if plan.kind == "diloco" else self.together_seconds
        return computing + self.exchange_seconds(plan.kind) / plan.local_steps

    def slow_down(self, plan: Plan) -> float:
        """How many times longer a step is than without any exchange."""
        return self.step_seconds(plan) / self.together_seconds


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
    for plan in mild_to_strong(settings, seen.remembers):
        weighed[plan] = seen.slow_down(plan)
        if weighed[plan] <= (WORTH_QUALITY_SLOW_DOWN if plan.kind == "int4" else HIDDEN_SLOW_DOWN):
            break
    chosen = min(weighed, key=lambda plan: (weighed[plan] > HIDDEN_SLOW_DOWN, weighed[plan]))
    mildest = next(iter(weighed))
    reason = (
        f"{chosen}: the hosts send each other {seen.link.bytes_per_second * 8 / 1e6:,.0f} Mbit/s, so that {mildest} "
        f"makes a step of {seen.together_seconds:.2g} s {weighed[mildest]:.2f} times as long"
    )
    if chosen != mildest:
        reason += f", this {weighed[chosen]:.2f} times"
    if chosen.kind == "diloco":
        reason += "; it costs some quality (docs/slow-networks.md)"
    return Choice(chosen, reason, {str(plan): slow_down for plan, slow_down in weighed.items()})


def bucket_shares(shapes: Sequence[torch.Size]) -> tuple[float, ...]:
    """How an all-reduce cuts a gradient of these shapes up; backward comes to the last first."""
    remaining = [shape.numel() for shape in shapes]
    sizes, whole = [], sum(remaining)
    for count in bucket_lengths(remaining):
        sizes.append(sum(remaining[-count:]))
        del remaining[-count:]
    return tuple(size / whole for size in sizes)


def mild_to_strong(settings: ExchangeConfig, remembers: bool) -> Iterator[Plan]:
    """What `auto` weighs; not PowerSGD: at the traffic of local steps it loses more quality (docs/slow-networks.md)."""
    yield Plan("allreduce")
    yield Plan("bf16")
    if remembers:
        yield Plan("int4")
        local_steps = settings.local_steps
        yield Plan("diloco", local_steps)
        while (local_steps := 2 * local_steps) <= MOST_LOCAL_STEPS:
            yield Plan("diloco", local_steps)


def make_exchange(plan: Plan, config: Config, trained: Trained, world: World) -> Exchange:
    """The strategy at work on a model; on a single host there is nothing to save, so it is always a plain sum."""
    if plan.kind == "allreduce" or len(world.hosts) == 1:
        return AllReduce(trained, world)
    settings = config.exchange
    shapes, values = [leaf.shape for leaf in trained.leaves], len(trained.gradient)

    def low_rank(group: dist.ProcessGroup) -> Sum:
        return LowRankSum(group, shapes, settings.powersgd_rank, world.device)

    makers: dict[str, SumMaker] = {
        "bf16": partial(BFloat16Sum, length=values, device=world.device),
        "int4": partial(FourBitSum, length=values, device=world.device),
        "powersgd": low_rank,
    }
    if plan.kind != "diloco":
        return SumBetweenHosts(trained, world, makers[plan.kind])
    start = settings.start_steps if settings.start_steps is not None else config.schedule.warmup_steps
    return LocalSteps(
        trained,
        world,
        settings,
        rounds=Rounds(start, plan.local_steps, config.train.max_steps),
        start_sum=makers["int4"],
        change_sum=makers[settings.deltas],
    )
