"""Everything the doctor has found, for people and programs alike: figures, and the advice that follows from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tandem.cluster.exchange.link_probe import SumCosts
from tandem.cluster.exchange.strategy import find_strategy
from tandem.cluster.exchange.traffic import BASELINE
from tandem.doctor.gpu_memory import Batching, too_little_memory
from tandem.doctor.machine import Machine
from tandem.doctor.measure import Reading
from tandem.doctor.predict import MBIT, OtherLink, Prediction
from tandem.model.memory_estimate import MemoryEstimate
from tandem.thresholds import BOTTLENECK_SHARE
from tandem.units import link_rate, size

# Processes differ by some tenths from noise alone; one that takes half as long again holds all the others up.
MUCH_SLOWER = 1.5
# TCP and gloo do not reach the rate of the fastest cards; less than this share of it is a cap or a bad cable.
EXPECTED_OF_CARD = 0.25
# Links whose steps differ less than this need no sentence.
WORTH_A_SENTENCE = 1.5


@dataclass(frozen=True)
class Computing:
    """What a step takes without any exchange."""

    together_seconds: float
    """Seconds of a step in which every process waits for the slowest."""
    apart_seconds: float
    """Seconds of a step in which no process waits for another."""
    process_seconds: tuple[float, ...]
    """Mean seconds of a step by rank."""
    parts: dict[str, float]
    """Seconds of this process's steps by part, as a log line has them; empty if steps were worked out."""
    worked_out: bool
    """Whether whole steps would have taken too long, and were worked out from parts of a micro-batch."""
    made_up_sentences: bool
    gflops: float
    """Speed of the slowest process in products of matrices."""


@dataclass(frozen=True)
class Network:
    """The link between the hosts."""

    mbit_per_second: float
    latency_seconds: float
    measured: dict[str, tuple[tuple[int, float], ...]]
    """By strategy: values in the vector and seconds, for growing vectors."""

    @classmethod
    def of(cls, sums: SumCosts) -> Network:
        grown = {kind: times.points for kind, times in sums.times.items() if find_strategy(kind).grows_with_length}
        return cls(sums.link.bytes_per_second / MBIT, sums.link.latency, grown)


@dataclass(frozen=True)
class Needs:
    """What the run needs room for."""

    parameters: int
    memory_bytes: int
    """For a process on a CPU: weights, gradient and Adam's two means; a batch comes on top."""
    gpu_memory: MemoryEstimate | None
    """For a process on a GPU; None if no host has one."""
    fitting: Batching | None
    """The largest micro-batches that the smallest GPU holds; None without a GPU, or if none fit."""
    checkpoint_bytes: int
    disk_bytes: int
    """All the checkpoints that the settings keep, and one that is being written."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, what follows, and whether to start."""

    machines: tuple[Machine, ...]
    hosts_of_ranks: tuple[str, ...]
    """Name of each process's host, by rank."""
    needs: Needs
    computing: Computing
    network: Network | None
    """None for a process alone."""
    reading: Reading | None
    """None without a corpus."""
    price_per_hour: float | None
    max_steps: int
    predictions: tuple[Prediction, ...]
    other_links: tuple[OtherLink, ...]
    """For a single host: what a second one like it would mean."""

    @property
    def chosen(self) -> Prediction:
        """What the settings lead to."""
        return next(prediction for prediction in self.predictions if prediction.chosen)

    @property
    def shares(self) -> dict[str, float]:
        """Share of a step, as it will be, of each part that is not compute."""
        computing, step = self.computing, self.chosen.step_seconds
        waits = self.chosen.strategy.syncs_every_step
        waited = computing.together_seconds if waits else computing.apart_seconds
        return {
            "network": max(step - waited, 0.0) / step,
            "waiting": max(waited - statistics.mean(computing.process_seconds), 0.0) / step,
            "data": computing.parts.get("data", 0.0) / step,
        }

    @property
    def bottleneck(self) -> str:
        """data, waiting or network, if one of them is large; else compute."""
        part, share = max(self.shares.items(), key=lambda part: part[1])
        return part if share >= BOTTLENECK_SHARE else "compute"

    @property
    def advice(self) -> str:
        """One sentence: the bottleneck, and what to change."""
        bottleneck, shares = self.bottleneck, self.shares
        if bottleneck == "compute":
            rest = f"the network takes {shares['network']:.0%} of a step" if self.network else "nothing is exchanged"
            remedy = "a faster or one more device shortens the run"
            return f"Compute will be the bottleneck, as it should be: {rest}; {remedy}."
        share = f"{shares[bottleneck]:.0%} of a step"
        if bottleneck == "network":
            return f"The network will be the bottleneck with {share} ({self.chosen.exchange}); {self._way_out()}."
        if bottleneck == "waiting":
            slow = self._slow_hosts()
            remedy = f"replace or relieve {', '.join(slow)}" if slow else "larger batch.tokens even out the steps"
            return f"Waiting for the slowest process will be the bottleneck with {share}; {remedy}."
        return f"Making batches will be the bottleneck with {share}; put the corpus on a faster disk."

    @property
    def notes(self) -> tuple[str, ...]:
        """What else is worth knowing."""
        return tuple(self._notes())

    @property
    def reasons_against(self) -> tuple[str, ...]:
        """What would make the run fail or drag, and so should be changed before starting."""
        return tuple(self._reasons())

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["hosts_of_ranks"]
        if self.needs.gpu_memory is not None:
            facts["needs"]["gpu_memory"] = self.needs.gpu_memory.as_dict()
        said = {name: getattr(self, name) for name in ("bottleneck", "advice", "notes", "reasons_against")}
        return {**facts, **said, "advises_against": bool(self.reasons_against)}

    def _way_out(self) -> str:
        """A better exchange strategy, or a better link if the strategy is the best already."""
        chosen, auto = self.chosen, next(prediction for prediction in self.predictions if prediction.auto)
        if auto.step_seconds < chosen.step_seconds / WORTH_A_SENTENCE:
            ratio = chosen.step_seconds / auto.step_seconds
            quality = ", at some cost in quality" if auto.strategy.costs_quality else ""
            return f"exchange.kind=auto ({auto.exchange}) makes a step {ratio:.1f} times shorter{quality}"
        for link in self.other_links:
            faster = self.network is not None and link.mbit > self.network.mbit_per_second
            if faster and link.auto_step_seconds < chosen.step_seconds / WORTH_A_SENTENCE:
                ratio = chosen.step_seconds / link.auto_step_seconds
                return f"a link of {link_rate(link.mbit)} makes a step {ratio:.1f} times shorter"
        return "more tokens in a step (batch.micro_batches) exchange less often"

    def _notes(self) -> Iterator[str]:
        by_rate = {link.mbit: link for link in self.other_links}
        slow, fast = by_rate.get(100), by_rate.get(1_000)
        if slow and fast and slow.allreduce_step_seconds > WORTH_A_SENTENCE * fast.allreduce_step_seconds:
            ratio = slow.allreduce_step_seconds / fast.allreduce_step_seconds
            avoided = f"; {slow.auto} avoids it" if slow.auto != BASELINE else ""
            longer = f"{ratio:.1f} times longer than one of 1 Gbit/s"
            yield f"A link of 100 Mbit/s makes an all-reduce step {longer}{avoided}."
        passing = math.inf if self.network is None else self.network.mbit_per_second
        for machine in self.machines if len(self.machines) > 1 else ():
            card = machine.interface_mbit
            if card is not None and passing < EXPECTED_OF_CARD * card:
                yield (
                    f"{machine.host}: {machine.interface} is a card of {link_rate(card)}, but only "
                    f"{link_rate(passing)} pass: look for a cap on the port."
                )
        if self.computing.made_up_sentences:
            yield "Steps were taken with made-up sentences of usual lengths; --corpus takes your own."
        if self.computing.worked_out:
            yield "Whole steps would have taken too long: their time is worked out from parts of a micro-batch."
        if not any(machine.gpus for machine in self.machines):
            yield "No GPU was found: steps are taken on processors."

    def _reasons(self) -> Iterator[str]:
        chosen, needs, reading, first = self.chosen, self.needs, self.reading, self.machines[0]
        if len(self.machines) > 1 and chosen.is_too_slow:
            longer = f"{chosen.exchange} makes a step {chosen.slow_down:.1f} times longer than its compute"
            yield f"{longer}: {self._way_out()}"
        if needs.disk_bytes > first.disk_free_bytes:
            yield (
                f"{first.host}: the checkpoints need {size(needs.disk_bytes)}, but {first.disk} has only "
                f"{size(first.disk_free_bytes)}: make room, or lower checkpoint.keep_last"
            )
        for machine in self.machines:
            yield from _short_of_memory(machine, needs)
        for host in self._slow_hosts():
            longer = f"its steps take more than {MUCH_SLOWER} times as long as others'"
            yield f"{host}: {longer}: replace it, or leave it out"
        if reading is not None and reading.step_mb / reading.mb_per_second > chosen.step_seconds:
            yield (
                f"the corpus comes with {reading.mb_per_second:.1f} MB/s, but a step reads {reading.step_mb:.1f} MB: "
                "copy it to a faster disk"
            )

    def _slow_hosts(self) -> list[str]:
        """Hosts with a process that takes much longer than the middle one of the other hosts."""
        timed = list(zip(self.hosts_of_ranks, self.computing.process_seconds, strict=True))
        slow = []
        for host in dict.fromkeys(self.hosts_of_ranks):
            others = [seconds for other, seconds in timed if other != host]
            slowest = max(seconds for name, seconds in timed if name == host)
            if others and slowest > MUCH_SLOWER * statistics.median(others):
                slow.append(host)
        return slow


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
