"""Were the devices used, was the network the bottleneck, and how do step time and network relate?"""

from __future__ import annotations

import numpy as np

from tandem.report.answers import Answer, Confidence, Evidence
from tandem.report.figures import duration, percent, size
from tandem.report.findings import Findings
from tandem.report.network import NOT_TRAINING
from tandem.report.record import FloatArray, HostCurves, RunRecord, Team

# Compute takes at least this share of the time in which a device is well used; the optimizer counts as compute.
WELL_USED = 0.85
# A GPU that computes draws most of its cap; one that spins in a wait draws about half.
BUSY_POWER = 0.6
# A correlation below this is none to speak of, and above that strong.
WEAK, STRONG = 0.3, 0.7
FEWEST_PAIRS = 8
# Cards that are listed one by one, the least busy first: two machines' worth.
LISTED_CARDS = 16


def answer_utilisation(run: RunRecord, findings: Findings) -> Answer:
    evidence = _device_evidence(run)
    training = sum(seconds for part, seconds in run.seconds.items() if part not in NOT_TRAINING)
    power, utilisation = evidence.get("gpu_power_share"), evidence.get("gpu_utilisation_share")
    verdict, said = "unknown", "The data has neither device samples nor a clock"
    confidence: Confidence = "none"
    if "compute" in run.seconds and training:
        compute = (run.seconds.get("compute", 0.0) + run.seconds.get("optimizer", 0.0)) / training
        evidence["compute_share"] = compute
        idle = power is not None and power < BUSY_POWER
        verdict = "fully_used" if compute >= WELL_USED and not idle else "under_used"
        confidence = "high" if power is not None or run.team.device == "cpu" else "medium"
        said = f"{percent(compute)} of the training time went into compute, the optimizer included"
        rest = {
            part: seconds
            for part, seconds in run.seconds.items()
            if part not in (*NOT_TRAINING, "compute", "optimizer")
        }
        if compute < WELL_USED and rest:
            largest = max(rest, key=lambda part: rest[part])
            said += f"; most of the rest was {largest} ({percent(rest[largest] / training)})"
    elif power is not None:
        verdict, confidence = ("fully_used" if power >= BUSY_POWER else "under_used"), "medium"
        said = "There is no clock, only samples"
    elif findings.network.exposed_seconds and findings.network.verdict == "bottleneck":
        verdict, confidence = "under_used", "low"
        share = findings.network.exposed_seconds / (findings.network.step_seconds or 1.0)
        said = (
            f"By arithmetic they waited for the network {percent(share)} of each step; there are no samples to show it"
        )
    if utilisation is not None:
        said += f"; the GPUs were {percent(utilisation)} utilised{_spread_words(run)}"
    if power is not None:
        said += f" and drew {percent(power)} of their power cap"
    if run.team.cards:
        said += f"; {_machine_words(run.team)}"
    return Answer(
        id="utilisation",
        question="Were the devices fully utilised?",
        verdict=verdict,
        confidence=confidence,
        answer=f"{said}.",
        evidence=evidence,
        explanation=(
            "A GPU's utilisation only says that something ran on it, and a loop that waits for the network counts as "
            "something: it reads 100 % while nothing is computed. The share of compute, and the power it draws against "
            "its cap, do not lie like that."
        ),
    )


def _machine_words(team: Team) -> str:
    """What a run on GPUs computed on, and in which way."""
    alike = len(team.cards) == 1 and team.ranks is not None and team.ranks > 1
    said = [f"it ran on {team.ranks} x {team.cards[0]}" if alike else f"it ran on {' and '.join(team.cards)}"]
    if team.precision is not None:
        said.append(f"in {team.precision}")
    if team.compiled is not None:
        said.append("with compiled layers" if team.compiled else "without compiling")
    words = " ".join(said)
    if team.deterministic is None:
        return words
    return f"{words}, {'deterministic' if team.deterministic else 'not deterministic'}"


def _spread_words(run: RunRecord) -> str:
    """How far the cards differ, where each is known by itself and they differ at all."""
    means = _means_by_card(run, "gpu_utilisation")
    if len(means) < 2:
        return ""
    lowest, highest = min(means, key=lambda card: means[card]), max(means.values())
    if percent(means[lowest]) == percent(highest):
        return ""
    return f" (from {percent(means[lowest])}, {lowest}, to {percent(highest)})"


def _means_by_card(run: RunRecord, curve: str) -> dict[str, float]:
    """Each card's mean, by its host's name and the driver's number of it."""
    return {
        f"{host.name} GPU {gpu.index}": float(np.nanmean(gpu.curves[curve].values))
        for host in run.hosts
        for gpu in host.gpus
        if curve in gpu.curves
    }


def _device_evidence(run: RunRecord) -> Evidence:
    """What it ran on, and means over the hosts' samples."""
    names = {"cpu": "cpu_share", "gpu_utilisation": "gpu_utilisation_share", "gpu_power": "gpu_power_share"}
    team = run.team
    ran: Evidence = {
        "device": team.device,
        "cards": list(team.cards) or None,
        "card_memory_bytes": team.card_memory_bytes,
        "precision": team.precision,
        "compiled": team.compiled,
        "deterministic": team.deterministic,
    }
    evidence: Evidence = {name: value for name, value in ran.items() if value is not None}
    evidence["hosts_sampled"] = len(run.hosts)
    for curve, name in names.items():
        means = [_mean(host, curve) for host in run.hosts if curve in host.curves]
        if means:
            evidence[name] = float(np.mean(means))
            if len(means) > 1:
                evidence[f"lowest_host_{name}"] = float(min(means))
        by_card = _means_by_card(run, curve)
        if len(by_card) > 1:
            least_first = sorted(by_card, key=lambda card: by_card[card])[:LISTED_CARDS]
            evidence[f"by_card_{name}"] = {card: by_card[card] for card in least_first}
    return evidence


def _mean(host: HostCurves, curve: str) -> float:
    return float(np.nanmean(host.curves[curve].values))


def answer_network(run: RunRecord, findings: Findings) -> Answer:
    network = findings.network
    evidence: Evidence = {
        "step_seconds": network.step_seconds,
        "exposed_seconds_per_step": network.exposed_seconds,
        "exposed_is": "measured" if network.exposed_is_measured else "estimated",
        "waiting_seconds_per_step": network.waiting_seconds,
        "ring_floor_bytes_per_step": network.floor_bytes,
        "seen_bytes_per_step": network.seen_bytes,
        "mean_rate_mbit_per_second": network.mean_mbit,
        "exchange_rate_mbit_per_second": network.exchange_mbit,
        "card_speed_mbit_per_second": network.link_mbit,
        "step_with_10_times_faster_link_seconds": network.step_with(10),
        "step_with_10_times_slower_link_seconds": network.step_with(0.1),
        "ranks": run.team.ranks,
        "hosts": run.team.hosts,
        "exchange": run.team.exchange,
    }
    if network.step_seconds and network.exposed_seconds is not None:
        evidence["exposed_share"] = network.exposed_seconds / network.step_seconds
    if network.link_mbit and network.mean_mbit is not None and network.floor_bytes is not None:
        evidence["mean_rate_of_card_share"] = network.mean_mbit / network.link_mbit
        evidence["ring_floor_at_card_speed_seconds"] = network.floor_bytes * 8e-6 / network.link_mbit
    words = {"bottleneck": "Yes", "not_bottleneck": "No", "unknown": "It cannot be told"}
    said = f"{words[network.verdict]}: {network.because}"
    faster, slower = network.step_with(10), network.step_with(0.1)
    # Without a measured exposure the two would only repeat a guess.
    told = (network.exposed_is_measured and network.crossed) or network.verdict == "bottleneck"
    if faster and slower and network.step_seconds and told:
        said += (
            f"; on a link ten times as fast a step would take {duration(faster)} instead of "
            f"{duration(network.step_seconds)}, on one ten times as slow {duration(slower)}"
        )
    return Answer(
        id="network",
        question="Was the network the bottleneck?",
        verdict=network.verdict,
        confidence=network.confidence,
        answer=f"{said}.",
        evidence={name: value for name, value in evidence.items() if value is not None},
        explanation=(
            "In every step a ring of N processes must push 2(N-1)/N of the gradient through each network card. Busy "
            "GPUs do not clear the network: they look busy while they wait for it. What counts is the time of a step "
            "in which nothing but the exchange happened."
        ),
    )


def answer_network_correlation(run: RunRecord, findings: Findings) -> Answer:
    network = findings.network
    steps, carried = _paired(run)
    evidence: Evidence = {"stretches_compared": len(steps)}
    if network.floor_bytes is not None:
        evidence["ring_floor_bytes_per_step"] = network.floor_bytes
    verdict, confidence, said = _relation(run, findings, steps, carried, evidence)
    return Answer(
        id="network_correlation",
        question="How do step time and network use relate?",
        verdict=verdict,
        confidence=confidence,
        answer=said,
        evidence=evidence,
        explanation=(
            "A synchronous step moves the same bytes whatever it takes, so that the rate is bytes over time: where the "
            "network is the limit, the rate stands at the link's and step time follows it; where it is not, a longer "
            "step merely lowers the rate."
        ),
    )


def _paired(run: RunRecord) -> tuple[FloatArray, ...]:
    """Step times and bytes a step of the same stretches."""
    carried = run.network_bytes if len(run.network_bytes) else run.exchanged_bytes
    _, of_steps, of_bytes = np.intersect1d(run.step_seconds.at, carried.at, return_indices=True)
    steps, sizes = run.step_seconds.values[of_steps], carried.values[of_bytes]
    # Some programs log a step of no time at all.
    return steps[steps > 0], sizes[steps > 0]


def _relation(
    run: RunRecord,
    findings: Findings,
    steps: FloatArray,
    carried: FloatArray,
    evidence: Evidence,
) -> tuple[str, Confidence, str]:
    network = findings.network
    if run.team.hosts == 1 or run.team.ranks == 1:
        return "no_network", "high", "Nothing crossed a network, so that nothing relates."
    if not len(steps) and network.mean_mbit is not None and network.floor_bytes is not None:
        evidence["mean_rate_mbit_per_second"] = network.mean_mbit
        said = (
            f"Each step must have moved {size(network.floor_bytes)} through each card, at the median step time "
            f"{network.mean_mbit:,.0f} Mbit/s; the network itself was not sampled, so that this is arithmetic."
        )
        return "calculated", "low", said
    if len(steps) < FEWEST_PAIRS:
        return "unknown", "none", "There are too few stretches with both a step time and a count of bytes."
    rates = carried * 8e-6 / steps
    evidence["bytes_per_step"] = float(np.median(carried))
    evidence["rate_mbit_per_second"] = float(np.median(rates))
    evidence["rate_mbit_per_second_range"] = [float(rates.min()), float(rates.max())]
    with_bytes, with_rate = _correlation(steps, carried), _correlation(steps, rates)
    evidence["correlation_of_step_time_with_bytes"] = with_bytes
    evidence["correlation_of_step_time_with_rate"] = with_rate
    moved = f"{size(float(np.median(carried)))} a step at {np.median(rates):,.0f} Mbit/s"
    if network.verdict == "bottleneck":
        verdict = "network_sets_step_time"
        said = f"The network sets the step time: {moved}"
    else:
        verdict = "independent"
        said = f"The network does not set the step time: {moved}"
    if with_rate < -STRONG:
        said += "; longer steps had lower rates, as the same bytes spread over more time"
    if with_bytes > STRONG:
        said += "; longer steps moved more bytes"
    if abs(with_rate) < WEAK and abs(with_bytes) < WEAK:
        said += "; neither bytes nor rate move with the step time"
    return verdict, "high" if len(steps) > 4 * FEWEST_PAIRS else "medium", f"{said}."


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Of the ranks, so that one outlier does not make it; 0 where one of them does not move at all."""
    first, second = (np.argsort(np.argsort(values)).astype(np.float64) for values in (one, other))
    if not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
