"""`exchange.kind=auto`: what a step costs under each plan, and the mildest plan that is worth its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tandem.cluster.exchange.strategy import HIDDEN_SLOW_DOWN, ExchangePlan, Strategy, find_strategy, known_strategies
from tandem.cluster.exchange.traffic import BASELINE, SAMPLED_EVERY
from tandem.config import ExchangeConfig
from tandem.units import short_duration


@dataclass(frozen=True)
class Link:
    """The network between hosts, as all-reduces see it."""

    bytes_per_second: float
    """Sent by each host while it receives as much."""
    latency: float
    """Seconds that an exchange of almost nothing takes."""


@dataclass(frozen=True)
class StepCosts:
    """Measured or predicted seconds from which the time of a step follows for every plan."""

    link: Link
    sum_seconds: Mapping[str, float]
    """Seconds of one sum of the gradient over the hosts by strategy, coding included."""
    together_seconds: float
    """Seconds of a step without any exchange in which every process waits for the slowest."""
    apart_seconds: float
    """Seconds of such a step when no process waits for another, on the process that is slowest on the whole."""
    backward_seconds: float
    """Seconds of a process's last backward pass in a step, behind which an all-reduce can hide."""
    buckets: tuple[float, ...]
    """Shares of the gradient that an all-reduce sends one after the other, as backward comes to them."""
    may_keep_state: bool
    """Whether strategies that keep state are open to the run; float16's loss scale forbids them."""
    settings: ExchangeConfig = field(default_factory=ExchangeConfig)

    def exchange_seconds(self, strategy: Strategy) -> float:
        """Seconds that one exchange between hosts adds to the step that it is part of."""
        seconds = self.sum_seconds[strategy.sums_like(self.settings).name]
        if strategy.overlaps_backward:
            # Sampled exchanges give up their overlap.
            seconds += (self._exposed_seconds(seconds) - seconds) * (1 - 1 / SAMPLED_EVERY)
        return seconds + strategy.small_messages * self.link.latency

    def _exposed_seconds(self, seconds: float) -> float:
        """What of an all-reduce is left after backward: a bucket waits for its gradients, and for the one before."""
        ready = done = 0.0
        for share in self.buckets:
            # Backward comes to as many weights in a second at its end as at its beginning, roughly.
            ready += share * self.backward_seconds
            done = max(done, ready) + share * seconds
        return done - ready

    def compute_seconds(self, strategy: Strategy) -> float:
        """Seconds of a step without its exchange: where hosts meet in every step, each waits for the slowest."""
        return self.together_seconds if strategy.syncs_every_step else self.apart_seconds

    def step_seconds(self, plan: ExchangePlan) -> float:
        """Mean seconds of a step."""
        return self.compute_seconds(plan.strategy) + self.exchange_seconds(plan.strategy) / plan.local_steps

    def slow_down(self, plan: ExchangePlan) -> float:
        """How many times longer a step is than without any exchange."""
        return self.step_seconds(plan) / self.together_seconds


@dataclass(frozen=True)
class StrategyChoice:
    """The exchange plan that was chosen, with the reason for it."""

    plan: ExchangePlan
    reason: str
    slow_downs: dict[str, float]
    """How many times longer each weighed plan makes a step, mildest plan first."""


def plans_for_auto(settings: ExchangeConfig, may_keep_state: bool) -> Iterator[ExchangePlan]:
    """What `auto` weighs, mildest first."""
    for strategy in known_strategies():
        if strategy.auto_order is not None and (may_keep_state or not strategy.keeps_state):
            yield from strategy.auto_plans(settings)


def asked_plan(settings: ExchangeConfig, hosts: int) -> ExchangePlan | None:
    """The plan that needs no choice: that of a single host, or of the strategy that the settings name."""
    if hosts == 1:
        return ExchangePlan(BASELINE)
    return None if settings.kind == "auto" else find_strategy(settings.kind).plan(settings)


def choose(costs: StepCosts) -> StrategyChoice:
    """The mildest plan whose cost stays hidden, or is worth the quality; if there is none, the one that costs least."""
    weighed: dict[ExchangePlan, float] = {}
    for plan in plans_for_auto(costs.settings, costs.may_keep_state):
        weighed[plan] = costs.slow_down(plan)
        if weighed[plan] <= plan.strategy.accepted_slow_down:
            break
    chosen = min(weighed, key=lambda plan: (weighed[plan] > HIDDEN_SLOW_DOWN, weighed[plan]))
    mildest = next(iter(weighed))
    reason = (
        f"{chosen}: the hosts send each other {costs.link.bytes_per_second * 8 / 1e6:,.0f} Mbit/s, so that {mildest} "
        f"makes a step of {short_duration(costs.together_seconds)} {weighed[mildest]:.2f} times as long"
    )
    if chosen != mildest:
        reason += f", this {weighed[chosen]:.2f} times"
    if chosen.strategy.costs_quality:
        reason += "; the first steps, taken together, take longer, and it costs some quality (docs/slow-networks.md)"
    return StrategyChoice(chosen, reason, {str(plan): slow_down for plan, slow_down in weighed.items()})
