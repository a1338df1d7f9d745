"""Whether the network held a run up: what had to cross it, how fast it did, and how much of a step that took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tandem.cluster.traffic import ring_bytes
from tandem.report.answers import Confidence
from tandem.report.hardware import most_compute_seconds
from tandem.report.record import RunRecord, Team

Verdict = Literal["bottleneck", "not_bottleneck", "unknown"]
Judged = tuple[Verdict, Confidence, str]
"""With the reason."""

# Exposed communication above this share of a training step is worth a faster link or a thriftier exchange: ten
# times the rate would save nearly as much of the bill.
BOTTLENECK_SHARE = 0.2
# So far from that bound, in shares of a step, nobody argues about a verdict that was measured.
CLEAR_OF_BOUND = 0.1
# Rates at which slow links are sold or capped, in Mbit/s, and how full an all-reduce makes a link that it waits for.
# Faster links are seldom filled by a ring of few processes: a rate near one of them proves nothing.
LINK_RATES = (10, 100, 1000)
FULL_LINK = (0.7, 1.0)
# Inside a machine nothing is as slow as this, in Mbit/s.
SLOWEST_INSIDE = 1000
# The parts of a step that are training; the rest comes from evaluating and saving.
NOT_TRAINING = ("evaluation", "checkpoint")
MEGA = 1e6


@dataclass(frozen=True)
class NetworkFacts:
    """The network's part in a run; None where it is not known."""

    verdict: Verdict
    confidence: Confidence
    because: str
    step_seconds: float | None
    exposed_seconds: float | None
    """Of a step, spent on the exchange and on nothing else; an estimate where the run has no clock."""
    exposed_is_measured: bool
    waiting_seconds: float | None
    """Of a step, spent on a slower process."""
    floor_bytes: float | None
    """The least that must leave each card in a step, with this exchange."""
    seen_bytes: float | None
    """What a card carried in a step."""
    mean_mbit: float | None
    """Rate over the whole step."""
    exchange_mbit: float | None
    """Rate during the exposed exchange."""
    link_mbit: float | None
    """Speed of the slowest host's card, as the system says."""

    @property
    def crossed(self) -> bool:
        """Whether the processes exchanged anything at all over a network."""
        return self.floor_bytes is not None

    def step_with(self, faster: float) -> float | None:
        """What a step would have taken with a link so many times as fast, had nothing else changed."""
        if self.step_seconds is None or self.exposed_seconds is None:
            return None
        step = self.step_seconds - self.exposed_seconds + self.exposed_seconds / faster
        if self.link_mbit is not None and self.floor_bytes is not None:
            # What was hidden behind compute comes to light on a slower link.
            step = max(step, self.floor_bytes * 8 / MEGA / (self.link_mbit * faster))
        return step


def look_at_network(run: RunRecord) -> NetworkFacts:
    """Gather what there is; a clock's evidence counts before calculation."""
    step = float(np.median(run.step_seconds.finite.values)) if len(run.step_seconds.finite) else None
    floor = _floor_bytes(run)
    seen = float(np.median(run.network_bytes.values)) if len(run.network_bytes) else None
    if "compute" in run.seconds:
        return _from_clock(run, step, floor, seen)
    return _from_calculation(run, step, floor)


def _floor_bytes(run: RunRecord) -> float | None:
    """By what was counted, or by the ring's arithmetic."""
    team = run.team
    if team.hosts == 1 or team.ranks == 1:
        return None
    if len(run.exchanged_bytes):
        return float(np.median(run.exchanged_bytes.values))
    if team.parameters is None or team.ranks is None or team.gradient_bytes_per_value is None:
        return None
    return ring_bytes(int(team.parameters * team.gradient_bytes_per_value), team.ranks) / team.local_steps


def _from_clock(run: RunRecord, step: float | None, floor: float | None, seen: float | None) -> NetworkFacts:
    training = sum(seconds for part, seconds in run.seconds.items() if part not in NOT_TRAINING)
    shares = {part: seconds / training if training else 0.0 for part, seconds in run.seconds.items()}
    exposed_share, waiting_share = shares.get("communication", 0.0), shares.get("waiting", 0.0)
    judged: Judged = (
        "bottleneck" if exposed_share >= BOTTLENECK_SHARE else "not_bottleneck",
        "high" if abs(exposed_share - BOTTLENECK_SHARE) > CLEAR_OF_BOUND else "medium",
        f"{exposed_share:.0%} of the training time was spent on the exchange and on nothing else",
    )
    if run.team.hosts == 1:
        judged = "not_bottleneck", "high", "all processes were on one host: nothing crossed a network"
    elif step is None:
        judged = "unknown", "none", "no step was logged"
    elif waiting_share > exposed_share and waiting_share > BOTTLENECK_SHARE:
        more = f"; waiting for a slower process took more ({waiting_share:.0%}), which no network mends"
        judged = *judged[:2], judged[2] + more
    speeds = [host.link_mbit_per_second for host in run.hosts if host.link_mbit_per_second]
    return _facts(
        judged,
        step,
        exposed=None if step is None else step * exposed_share,
        waiting=None if step is None else step * waiting_share,
        floor=floor,
        seen=seen,
        link=min(speeds, default=None),
        measured=True,
    )


def _from_calculation(run: RunRecord, step: float | None, floor: float | None) -> NetworkFacts:
    """Without a clock: what had to cross, how long compute can have taken at most, and whether a link looks full."""
    team, mean = run.team, _rate(floor, step)
    judged: Judged = (
        "unknown",
        "none",
        "the data tells neither how the time of a step was spent nor what crossed the network",
    )
    exposed = None
    if step is None:
        judged = "unknown", "none", "no step was timed"
    elif team.ranks == 1 or team.hosts == 1:
        judged = "not_bottleneck", "medium", "nothing crossed a network: there was one machine"
    elif mean is not None and floor is not None:
        most_compute = most_compute_seconds(team.device, team.precision, team.parameters, _positions(team))
        exposed = None if most_compute is None else max(step - most_compute, 0.0)
        judged = _judged_by_arithmetic(team, step, floor, mean, most_compute)
    return _facts(judged, step, exposed, waiting=None, floor=floor, seen=None, link=None, measured=False)


def _positions(team: Team) -> float | None:
    """What each rank computes in a step: what was counted, or at the very most."""
    if team.tokens_per_step is not None and team.ranks:
        # Source and target are about equally long, and computed side by side.
        return team.tokens_per_step / 2 / team.ranks
    return team.most_positions_per_rank


def _judged_by_arithmetic(team: Team, step: float, floor: float, mean: float, most_compute: float | None) -> Judged:
    moved = f"{floor / MEGA:,.0f} MB through each card in a step of {step:.3g} s needs {mean:,.0f} Mbit/s"
    full = next((rate for rate in LINK_RATES if FULL_LINK[0] * rate <= mean <= FULL_LINK[1] * rate), None)
    several = team.hosts is not None and team.hosts > 1
    like_a_link = f"{moved}: a link of {full:,} Mbit/s, full all the time" if full else moved
    if most_compute is None:
        # Without a bound on compute a rate may look like a link's by accident.
        if full is not None and several:
            return "bottleneck", "medium", like_a_link
        return "unknown", "none", f"{moved}; how long a step computes is not known"
    explained = f"compute explains {most_compute:.2g} s of it at the very most"
    share = 1 - most_compute / step
    if share < BOTTLENECK_SHARE:
        return "unknown", "none", f"{moved}, but compute may explain {most_compute:.2g} s of it"
    if full is not None and (several or full < SLOWEST_INSIDE):
        return "bottleneck", "high", f"{like_a_link}; {explained}"
    return "bottleneck", "medium" if share >= 0.5 and several else "low", f"{moved}, and {explained}"


def _facts(
    judged: Judged,
    step: float | None,
    exposed: float | None,
    waiting: float | None,
    floor: float | None,
    seen: float | None,
    link: float | None,
    measured: bool,
) -> NetworkFacts:
    carried = seen or floor
    exchange = _rate(carried, exposed)
    return NetworkFacts(
        *judged,
        step_seconds=step,
        exposed_seconds=exposed,
        exposed_is_measured=measured,
        waiting_seconds=waiting,
        floor_bytes=floor,
        seen_bytes=seen,
        mean_mbit=_rate(carried, step),
        # More than the card can do means that most of it was hidden behind compute: then it is no rate.
        exchange_mbit=None if exchange is not None and link is not None and exchange > link else exchange,
        link_mbit=link,
    )


def _rate(size: float | None, seconds: float | None) -> float | None:
    """Mbit/s."""
    return size * 8 / MEGA / seconds if size is not None and seconds else None
