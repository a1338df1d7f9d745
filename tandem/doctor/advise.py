"""What follows from the figures: the bottleneck, what to change, and what speaks against starting."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tandem.doctor.card_prediction import too_little_memory
from tandem.doctor.diagnosis import Computing, Needs, Network
from tandem.doctor.figures import rate
from tandem.doctor.machine import Machine
from tandem.doctor.measure import Reading
from tandem.doctor.predict import OtherLink, Prediction
from tandem.report.figures import size

# Beyond this slow-down a step spends more time on the network than on everything else, and two hosts are slower
# than one of them alone.
WORST_SLOW_DOWN = 2.0
# Processes differ by some tenths from noise alone; one that takes half as long again holds all the others up.
MUCH_SLOWER = 1.5
# A part that takes this share of a step is worth more thought than the compute; below it, compute is to be shortened.
BOTTLENECK_SHARE = 0.3
# TCP and gloo do not reach the rate of the fastest cards; less than this share of it is a cap or a bad cable.
EXPECTED_OF_CARD = 0.25
# Links whose steps differ less than this need no sentence.
WORTH_A_SENTENCE = 1.5


@dataclass(frozen=True)
class Findings:
    """What advice is made from."""

    machines: Sequence[Machine]
    hosts_of_ranks: Sequence[str]
    needs: Needs
    computing: Computing
    network: Network | None
    reading: Reading | None
    predictions: Sequence[Prediction]
    other_links: Sequence[OtherLink]

    @property
    def chosen(self) -> Prediction:
        return next(prediction for prediction in self.predictions if prediction.chosen)


@dataclass(frozen=True)
class Advice:
    """What to tell the user."""

    bottleneck: str
    sentence: str
    notes: tuple[str, ...]
    reasons_against: tuple[str, ...]


def advise(found: Findings) -> Advice:
    """Name the largest part of a step beside compute, and whatever would make the run fail or drag."""
    shares = step_shares(found)
    bottleneck, share = max(shares.items(), key=lambda part: part[1])
    if share < BOTTLENECK_SHARE:
        bottleneck = "compute"
    return Advice(bottleneck, _sentence(found, bottleneck, shares), tuple(_notes(found)), tuple(_reasons(found)))


def step_shares(found: Findings) -> dict[str, float]:
    """What of a step, as it will be, goes to each part that is not compute."""
    computing, step = found.computing, found.chosen.step_seconds
    waited = computing.together_seconds if found.chosen.kind != "diloco" else computing.apart_seconds
    mean = statistics.mean(computing.process_seconds)
    return {
        "network": max(step - waited, 0.0) / step,
        "waiting": max(waited - mean, 0.0) / step,
        "data": computing.parts.get("data", 0.0) / step,
    }


def _sentence(found: Findings, bottleneck: str, shares: dict[str, float]) -> str:
    if bottleneck == "compute":
        rest = f"the network takes {shares['network']:.0%} of a step" if found.network else "nothing is exchanged"
        return f"Compute will be the bottleneck, as it should be: {rest}; a faster or one more device shortens the run."
    share = f"{shares[bottleneck]:.0%} of a step"
    if bottleneck == "network":
        return f"The network will be the bottleneck with {share} ({found.chosen.exchange}); {_way_out(found)}."
    if bottleneck == "waiting":
        slow = _slow_hosts(found)
        remedy = f"replace or relieve {', '.join(slow)}" if slow else "larger batch.tokens even out the steps"
        return f"Waiting for the slowest process will be the bottleneck with {share}; {remedy}."
    return f"Making batches will be the bottleneck with {share}; put the corpus on a faster disk."


def _way_out(found: Findings) -> str:
    """A better way of exchanging, or a better link if the way is the best already."""
    chosen, auto = found.chosen, next(prediction for prediction in found.predictions if prediction.auto)
    if auto.step_seconds < chosen.step_seconds / WORTH_A_SENTENCE:
        ratio = chosen.step_seconds / auto.step_seconds
        quality = ", at some cost in quality" if auto.kind == "diloco" else ""
        return f"exchange.kind=auto ({auto.exchange}) makes a step {ratio:.1f} times shorter{quality}"
    faster = [link for link in found.other_links if found.network and link.mbit > found.network.mbit_per_second]
    for link in faster:
        if link.auto_step_seconds < chosen.step_seconds / WORTH_A_SENTENCE:
            ratio = chosen.step_seconds / link.auto_step_seconds
            return f"a link of {rate(link.mbit)} makes a step {ratio:.1f} times shorter"
    return "more tokens in a step (batch.micro_batches) exchange less often"


def _notes(found: Findings) -> Iterator[str]:
    by_rate = {link.mbit: link for link in found.other_links}
    slow, fast = by_rate.get(100), by_rate.get(1_000)
    if slow and fast and slow.allreduce_step_seconds > WORTH_A_SENTENCE * fast.allreduce_step_seconds:
        ratio = slow.allreduce_step_seconds / fast.allreduce_step_seconds
        avoided = f"; {slow.auto} avoids it" if slow.auto != "allreduce" else ""
        yield f"A link of 100 Mbit/s makes an all-reduce step {ratio:.1f} times longer than one of 1 Gbit/s{avoided}."
    if found.network is not None:
        for machine in found.machines:
            card = machine.interface_mbit
            if card is not None and len(found.machines) > 1 and found.network.mbit_per_second < EXPECTED_OF_CARD * card:
                yield (
                    f"{machine.host}: {machine.interface} is a card of {rate(card)}, but only "
                    f"{rate(found.network.mbit_per_second)} pass: look for a cap on the port."
                )
    if found.computing.made_up_sentences:
        yield "Steps were taken with made-up sentences of usual lengths; --corpus takes your own."
    if found.computing.worked_out:
        yield "Whole steps would have taken too long: their time is worked out from parts of a micro-batch."
    if not any(machine.gpus for machine in found.machines):
        yield "No GPU was found: steps are taken on processors."


def _reasons(found: Findings) -> Iterator[str]:
    chosen, needs = found.chosen, found.needs
    if len(found.machines) > 1 and chosen.slow_down > WORST_SLOW_DOWN:
        yield (
            f"{chosen.exchange} makes a step {chosen.slow_down:.1f} times longer than its compute: {_way_out(found)}"
        )
    first = found.machines[0]
    if needs.disk_bytes > first.disk_free_bytes:
        yield (
            f"{first.host}: the checkpoints need {size(needs.disk_bytes)}, but {first.disk} has only "
            f"{size(first.disk_free_bytes)}: make room, or lower checkpoint.keep_last"
        )
    for machine in found.machines:
        yield from _short_of_memory(machine, needs)
    for host in _slow_hosts(found):
        yield f"{host}: its steps take more than {MUCH_SLOWER} times as long as others': replace it, or leave it out"
    reading = found.reading
    if reading is not None and reading.step_mb / reading.mb_per_second > chosen.step_seconds:
        yield (
            f"the corpus comes with {reading.mb_per_second:.1f} MB/s, but a step reads {reading.step_mb:.1f} MB: "
            "copy it to a faster disk"
        )


def _short_of_memory(machine: Machine, needs: Needs) -> Iterator[str]:
    if machine.gpus and needs.gpu_memory is not None:
        there = min(gpu.memory_bytes for gpu in machine.gpus)
        if needs.gpu_memory.total > there:
            yield too_little_memory(machine.host, needs.gpu_memory, there, needs.fitting)
    elif needs.memory_bytes * machine.processes > machine.memory_free_bytes:
        need = f"each process needs {size(needs.memory_bytes)} for the model alone"
        yield (
            f"{machine.host}: {need}, but {machine.processes} "
            f"have only {size(machine.memory_free_bytes)} free: start fewer, or take a smaller model"
        )


def _slow_hosts(found: Findings) -> list[str]:
    """Hosts with a process that takes much longer than the middle one of the other hosts."""
    by_host: dict[str, list[float]] = {}
    for host, seconds in zip(found.hosts_of_ranks, found.computing.process_seconds, strict=True):
        by_host.setdefault(host, []).append(seconds)
    slow = []
    for host, mine in by_host.items():
        others = [seconds for other, theirs in by_host.items() if other != host for seconds in theirs]
        if others and max(mine) > MUCH_SLOWER * statistics.median(others):
            slow.append(host)
    return slow
