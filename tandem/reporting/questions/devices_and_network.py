"""Were the devices used, was the network the bottleneck, and how do step time and network relate?"""

from __future__ import annotations

import numpy as np

from tandem.reporting.answers import NO_TRAINING_HERE, Confidence, Evidence, Judgement, Reply
from tandem.reporting.judge.findings import RunFindings
from tandem.reporting.judge.processor_share import ProcessorFacts
from tandem.reporting.run_record import FloatArray, RunRecord, Team
from tandem.units import duration, percent, size

# Compute takes at least this share of the time in which a device is well used; the optimizer counts as compute.
WELL_USED = 0.85
# A GPU that computes draws most of its cap; one that spins in a wait draws about half.
BUSY_POWER = 0.6
# A correlation below this is none to speak of, and above that strong.
WEAK, STRONG = 0.3, 0.7
FEWEST_PAIRS = 8
# Cards that are listed one by one, the least busy first: two machines' worth.
LISTED_CARDS = 16
BOTTLENECK_WORDS = {"bottleneck": "Yes", "not_bottleneck": "No", "unknown": "It cannot be told"}


def answer_utilisation(run: RunRecord, findings: RunFindings) -> Reply:
    if run.holds_no_step:
        return Reply("unknown", "none", f"It cannot be told: {NO_TRAINING_HERE}.", {})
    evidence, network, shares = _device_evidence(run, findings.processors), findings.network, run.training_shares
    power, utilisation = evidence.get("gpu_power_share"), evidence.get("gpu_utilisation_share")
    verdict, said = "unknown", "The data has neither device samples nor a clock"
    confidence: Confidence = "none"
    if any(shares.values()):
        evidence["compute_share"] = compute = shares["compute"] + shares.get("optimizer", 0.0)
        idle = power is not None and power < BUSY_POWER
        verdict = "fully_used" if compute >= WELL_USED and not idle else "under_used"
        confidence = "high" if power is not None or run.team.device == "cpu" else "medium"
        said = f"{percent(compute)} of the training time went into compute, the optimizer included"
        if findings.processors is not None and findings.processors.held_up and run.team.device == "cpu":
            # A clock cannot tell computing from waiting for a core that somebody else has.
            verdict, said = "shared", f"The processors were not the run's alone: {findings.processors.words}; {said}"
        rest = {part: share for part, share in shares.items() if part not in ("compute", "optimizer")}
        if compute < WELL_USED and rest:
            largest = max(rest, key=lambda part: rest[part])
            said += f"; most of the rest was {largest} ({percent(rest[largest])})"
    elif power is not None:
        verdict, confidence = ("fully_used" if power >= BUSY_POWER else "under_used"), "medium"
        said = "There is no clock, only samples"
    elif network.exposed_seconds and network.judged.verdict == "bottleneck":
        verdict, confidence = "under_used", "low"
        share = percent(network.exposed_seconds / (network.step_seconds or 1.0))
        said = f"By arithmetic they waited for the network {share} of each step; there are no samples to show it"
    if utilisation is not None:
        said += f"; the GPUs were {percent(utilisation)} utilised{_spread_words(run)}"
    if power is not None:
        said += f" and drew {percent(power)} of their power cap"
    if run.team.cards:
        said += f"; {_machine_words(run.team)}"
    return Reply(verdict, confidence, f"{said}.", evidence)


def _machine_words(team: Team) -> str:
    """What a run on GPUs computed on, and in which way."""
    alike = len(team.cards) == 1 and team.ranks is not None and team.ranks > 1
    words = f"it ran on {team.ranks} x {team.cards[0]}" if alike else f"it ran on {' and '.join(team.cards)}"
    if team.precision is not None:
        words += f" in {team.precision}"
    if team.compiled is not None:
        words += " with compiled layers" if team.compiled else " without compiling"
    if team.deterministic is not None:
        words += ", deterministic" if team.deterministic else ", not deterministic"
    return words


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


def _device_evidence(run: RunRecord, processors: ProcessorFacts | None) -> Evidence:
    """What it ran on, and means over the hosts' samples."""
    team = run.team
    evidence: Evidence = {
        "device": team.device,
        "cards": list(team.cards) or None,
        "card_memory_bytes": team.card_memory_bytes,
        "precision": team.precision,
        "compiled": team.compiled,
        "deterministic": team.deterministic,
        "hosts_sampled": len(run.hosts),
    }
    if processors is not None:
        evidence |= {
            "cpu_of_this_run_share": processors.own_share,
            "cpu_of_other_programs_share": processors.others_share,
            "cpu_taken_by_hypervisor_share": processors.steal_share,
            "disturbed_time_share": processors.disturbed_time_share,
            "undisturbed_step_seconds": processors.undisturbed_step_seconds,
        }
    for curve in ("cpu", "gpu_utilisation", "gpu_power"):
        means = [float(np.nanmean(host.curves[curve].values)) for host in run.hosts if curve in host.curves]
        if means:
            evidence[f"{curve}_share"] = float(np.mean(means))
        if len(means) > 1:
            evidence[f"lowest_host_{curve}_share"] = min(means)
        by_card = sorted(_means_by_card(run, curve).items(), key=lambda card: card[1])
        if len(by_card) > 1:
            evidence[f"by_card_{curve}_share"] = dict(by_card[:LISTED_CARDS])
    return evidence


def answer_network(run: RunRecord, findings: RunFindings) -> Reply:
    network, team = findings.network, run.team
    step, exposed, floor, link = network.step_seconds, network.exposed_seconds, network.floor_bytes, network.link_mbit
    faster, slower = network.step_with(10), network.step_with(0.1)
    evidence: Evidence = {
        "step_seconds": step,
        "exposed_seconds_per_step": exposed,
        "exposed_is": "measured" if network.exposed_is_measured else "estimated",
        "waiting_seconds_per_step": network.waiting_seconds,
        "ring_floor_bytes_per_step": floor,
        "seen_bytes_per_step": network.seen_bytes,
        "mean_rate_mbit_per_second": network.mean_mbit,
        "exchange_rate_mbit_per_second": network.exchange_mbit,
        "card_speed_mbit_per_second": link,
        "step_with_10_times_faster_link_seconds": faster,
        "step_with_10_times_slower_link_seconds": slower,
        "ranks": team.ranks,
        "hosts": team.hosts,
        "exchange": team.exchange,
        "exposed_share": exposed / step if step and exposed is not None else None,
    }
    if link and network.mean_mbit is not None and floor is not None:
        evidence["mean_rate_of_card_share"] = network.mean_mbit / link
        evidence["ring_floor_at_card_speed_seconds"] = floor * 8e-6 / link
    verdict, confidence, because = network.judged
    said = f"{BOTTLENECK_WORDS[verdict]}: {because}"
    # Without a measured exposure both would only repeat a guess.
    told = (network.exposed_is_measured and floor is not None) or verdict == "bottleneck"
    if faster and slower and step and told:
        said += (
            f"; on a link ten times as fast a step would take {duration(faster)} instead of "
            f"{duration(step)}, on one ten times as slow {duration(slower)}"
        )
    return Reply(verdict, confidence, f"{said}.", evidence)


def answer_network_correlation(run: RunRecord, findings: RunFindings) -> Reply:
    steps, carried = _paired(run)
    floor = findings.network.floor_bytes
    evidence: Evidence = {"stretches_compared": len(steps), "ring_floor_bytes_per_step": floor}
    return Reply(*_relation(run, findings, steps, carried, evidence), evidence)


def _paired(run: RunRecord) -> tuple[FloatArray, ...]:
    """Step times and bytes a step of the same stretches."""
    carried = run.network_bytes if len(run.network_bytes) else run.exchanged_bytes
    _, of_steps, of_bytes = np.intersect1d(run.step_seconds.at, carried.at, return_indices=True)
    steps, sizes = run.step_seconds.values[of_steps], carried.values[of_bytes]
    # Some programs log a step of no time at all.
    return steps[steps > 0], sizes[steps > 0]


def _relation(
    run: RunRecord, findings: RunFindings, steps: FloatArray, carried: FloatArray, evidence: Evidence
) -> Judgement:
    network = findings.network
    if run.team.hosts == 1 or run.team.ranks == 1:
        return Judgement("no_network", "high", "Nothing crossed a network, so that nothing relates.")
    if not len(steps) and network.mean_mbit is not None and network.floor_bytes is not None:
        evidence["mean_rate_mbit_per_second"] = network.mean_mbit
        said = (
            f"Each step must have moved {size(network.floor_bytes)} through each card, at the median step time "
            f"{network.mean_mbit:,.0f} Mbit/s; the network itself was not sampled, so that this is arithmetic."
        )
        return Judgement("calculated", "low", said)
    if len(steps) < FEWEST_PAIRS:
        said = "There are too few stretches with both a step time and a count of bytes."
        return Judgement("unknown", "none", said)
    rates = carried * 8e-6 / steps
    with_bytes, with_rate = _correlation(steps, carried), _correlation(steps, rates)
    evidence.update(
        bytes_per_step=float(np.median(carried)),
        rate_mbit_per_second=float(np.median(rates)),
        rate_mbit_per_second_range=[float(rates.min()), float(rates.max())],
        correlation_of_step_time_with_bytes=with_bytes,
        correlation_of_step_time_with_rate=with_rate,
    )
    bound = network.judged.verdict == "bottleneck"
    said = (
        f"The network {'sets' if bound else 'does not set'} the step time: "
        f"{size(float(np.median(carried)))} a step at {np.median(rates):,.0f} Mbit/s"
    )
    if with_rate < -STRONG:
        said += "; longer steps had lower rates, as the same bytes spread over more time"
    if with_bytes > STRONG:
        said += "; longer steps moved more bytes"
    if abs(with_rate) < WEAK and abs(with_bytes) < WEAK:
        said += "; neither bytes nor rate move with the step time"
    confidence: Confidence = "high" if len(steps) > 4 * FEWEST_PAIRS else "medium"
    return Judgement("network_sets_step_time" if bound else "independent", confidence, f"{said}.")


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Rank correlation, which one outlier does not make; 0 where one of the series is constant."""
    first, second = (np.argsort(np.argsort(values)).astype(np.float64) for values in (one, other))
    if not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
