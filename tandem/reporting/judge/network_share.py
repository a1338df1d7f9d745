"""Whether the network held a run up: what had to cross it, how fast it did, and how much of a step that took."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.cards import TERA, known_card
from tandem.cluster.exchange.traffic import ring_bytes
from tandem.reporting.answers import Judgement
from tandem.reporting.run_record import RunRecord, Team
from tandem.thresholds import BOTTLENECK_SHARE

# A measured share of a step so far from BOTTLENECK_SHARE makes a sure verdict.
CLEAR_OF_BOUND = 0.1
# Rates at which slow links are sold or capped, in Mbit/s, and how full an all-reduce makes a link that it waits for.
# Faster links are seldom filled by a ring of few processes: a rate near one of them proves nothing.
LINK_RATES = (10, 100, 1000)
FULL_LINK = (0.7, 1.0)
# Inside a machine nothing is as slow as this, in Mbit/s.
SLOWEST_INSIDE = 1000
MEGA = 1e6
# The share of its peak that a translator reaches at the very least: dense float32 products come near a device's
# limit even in old programs, tensor cores are hard to feed.
LEAST_SHARE_FLOAT32, LEAST_SHARE_HALF = 0.3, 0.1
# Multiplications and additions for one parameter and one position, forward and backward.
OPERATIONS_A_PARAMETER = 6


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """The network's part in a run; None where it is not known."""

    judged: Judgement
    """`bottleneck`, `not_bottleneck` or `unknown`."""
    step_seconds: float | None
    exposed_seconds: float | None = None
    """Time of a step spent on the exchange and on nothing else; an estimate where the run has no clock."""
    exposed_is_measured: bool = False
    waiting_seconds: float | None = None
    """Time of a step spent waiting for a slower process."""
    floor_bytes: float | None
    """The least that must leave each card in a step, with this exchange; None if nothing crosses a network."""
    seen_bytes: float | None = None
    """What a card carried in a step."""
    link_mbit: float | None = None
    """Speed of the slowest host's card, as the system says."""

    @property
    def mean_mbit(self) -> float | None:
        """Rate over the whole step, in Mbit/s."""
        return _rate(self.seen_bytes or self.floor_bytes, self.step_seconds)

    @property
    def exchange_mbit(self) -> float | None:
        """Rate during the exposed exchange, in Mbit/s."""
        rate = _rate(self.seen_bytes or self.floor_bytes, self.exposed_seconds)
        # More than the card can do means that most of it was hidden behind compute: then it is no rate.
        return None if rate is not None and self.link_mbit is not None and rate > self.link_mbit else rate

    def step_with(self, faster: float) -> float | None:
        """What a step would have taken with a link so many times as fast, had nothing else changed."""
        if self.step_seconds is None or self.exposed_seconds is None:
            return None
        step = self.step_seconds - self.exposed_seconds + self.exposed_seconds / faster
        if self.link_mbit is not None and self.floor_bytes is not None:
            # What was hidden behind compute comes to light on a slower link.
            step = max(step, self.floor_bytes * 8 / MEGA / (self.link_mbit * faster))
        return step


def judge_network(run: RunRecord) -> NetworkFacts:
    """Judge by the step clock if the run has one, else by calculation."""
    return _from_clock(run) if "compute" in run.seconds else _from_calculation(run)


def _floor_bytes(run: RunRecord) -> float | None:
    """Bytes that must leave each card in a step: as counted, or by the ring's arithmetic."""
    team = run.team
    if team.hosts == 1 or team.ranks == 1:
        return None
    if len(run.exchanged_bytes):
        return run.exchanged_bytes.median
    if team.parameters is None or team.ranks is None or team.gradient_bytes_per_value is None:
        return None
    return ring_bytes(int(team.parameters * team.gradient_bytes_per_value), team.ranks) / team.local_steps


def _from_clock(run: RunRecord) -> NetworkFacts:
    step = run.step_seconds.median
    exposed, waiting = (run.training_shares.get(part, 0.0) for part in ("communication", "waiting"))
    judged = Judgement(
        "bottleneck" if exposed >= BOTTLENECK_SHARE else "not_bottleneck",
        "high" if abs(exposed - BOTTLENECK_SHARE) > CLEAR_OF_BOUND else "medium",
        f"{exposed:.0%} of the training time was spent on the exchange and on nothing else",
    )
    if run.team.hosts == 1:
        judged = Judgement("not_bottleneck", "high", "all processes were on one host: nothing crossed a network")
    elif step is None:
        judged = Judgement("unknown", "none", "no step was logged")
    elif waiting > exposed and waiting > BOTTLENECK_SHARE:
        more = f"; waiting for a slower process took more ({waiting:.0%}), which no network mends"
        judged = judged._replace(because=judged.because + more)
    return NetworkFacts(
        judged=judged,
        step_seconds=step,
        exposed_seconds=None if step is None else step * exposed,
        exposed_is_measured=True,
        waiting_seconds=None if step is None else step * waiting,
        floor_bytes=_floor_bytes(run),
        seen_bytes=run.network_bytes.median,
        link_mbit=min((host.link_mbit_per_second for host in run.hosts if host.link_mbit_per_second), default=None),
    )


def _from_calculation(run: RunRecord) -> NetworkFacts:
    """Without a clock: what had to cross, how long compute can have taken at most, and whether a link looks full."""
    team, step, floor = run.team, run.step_seconds.median, _floor_bytes(run)
    exposed = None
    if step is None:
        judged = Judgement("unknown", "none", "no step was timed")
    elif team.ranks == 1 or team.hosts == 1:
        judged = Judgement("not_bottleneck", "medium", "nothing crossed a network: there was one machine")
    elif floor is None or not step:
        because = "the data tells neither how the time of a step was spent nor what crossed the network"
        judged = Judgement("unknown", "none", because)
    else:
        most_compute = most_compute_seconds(team)
        exposed = None if most_compute is None else max(step - most_compute, 0.0)
        judged = _judged_by_arithmetic(team, step, floor, most_compute)
    return NetworkFacts(judged=judged, step_seconds=step, exposed_seconds=exposed, floor_bytes=floor)


def most_compute_seconds(team: Team) -> float | None:
    """The longest that the positions of a step can keep a device computing; None if it is not known."""
    card, positions = known_card(team.device) if team.device else None, team.most_positions_per_rank
    if team.tokens_per_step is not None and team.ranks:
        # Source and target are about equally long, and computed side by side.
        positions = team.tokens_per_step / 2 / team.ranks
    if card is None or team.parameters is None or positions is None:
        return None
    least_float32, least_half = LEAST_SHARE_FLOAT32 * card.float32_tflops, LEAST_SHARE_HALF * card.half_tflops
    speed = least_float32 if team.precision == "float32" else least_half
    return OPERATIONS_A_PARAMETER * team.parameters * positions / (speed * TERA)


def _judged_by_arithmetic(team: Team, step: float, floor: float, most_compute: float | None) -> Judgement:
    mean = floor * 8 / MEGA / step
    moved = f"{floor / MEGA:,.0f} MB through each card in a step of {step:.3g} s needs {mean:,.0f} Mbit/s"
    full = next((rate for rate in LINK_RATES if FULL_LINK[0] * rate <= mean <= FULL_LINK[1] * rate), None)
    several = team.hosts is not None and team.hosts > 1
    like_a_link = f"{moved}: a link of {full:,} Mbit/s, full all the time" if full else moved
    if most_compute is None:
        # Without a bound on compute a rate may look like a link's by accident.
        if full is not None and several:
            return Judgement("bottleneck", "medium", like_a_link)
        return Judgement("unknown", "none", f"{moved}; how long a step computes is not known")
    explained = f"compute explains {most_compute:.2g} s of it at the very most"
    share = 1 - most_compute / step
    if share < BOTTLENECK_SHARE:
        return Judgement("unknown", "none", f"{moved}, but compute may explain {most_compute:.2g} s of it")
    if full is not None and (several or full < SLOWEST_INSIDE):
        return Judgement("bottleneck", "high", f"{like_a_link}; {explained}")
    return Judgement("bottleneck", "medium" if share >= 0.5 and several else "low", f"{moved}, and {explained}")


def _rate(size: float | None, seconds: float | None) -> float | None:
    """Rate in Mbit/s."""
    return size * 8 / MEGA / seconds if size is not None and seconds else None
