"""Everything the doctor has found, for people and programs alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tandem.doctor.card_prediction import Batching
from tandem.doctor.machine import Machine
from tandem.doctor.measure import Reading
from tandem.doctor.predict import OtherLink, Prediction
from tandem.model.memory_estimate import MemoryEstimate


@dataclass(frozen=True)
class Computing:
    """What a step takes without any exchange."""

    together_seconds: float
    """If every process waits for the slowest in each step."""
    apart_seconds: float
    """If nobody waits."""
    process_seconds: tuple[float, ...]
    """On the average, by rank."""
    parts: dict[str, float]
    """Of this process, as a log line has them; empty if steps were worked out."""
    worked_out: bool
    """Whether whole steps would have taken too long, and were worked out from parts of a micro-batch."""
    made_up_sentences: bool
    gflops: float
    """Of the slowest process, multiplying matrices."""


@dataclass(frozen=True)
class Network:
    """The link between the hosts."""

    mbit_per_second: float
    latency_seconds: float
    measured: dict[str, tuple[tuple[int, float], ...]]
    """Way of summing: values in the vector and seconds, for growing vectors."""


@dataclass(frozen=True)
class Needs:
    """What the run needs room for."""

    parameters: int
    memory_bytes: int
    """Of a process on a processor at least: weights, gradient and Adam's two means; a batch comes on top."""
    gpu_memory: MemoryEstimate | None
    """Of a process on a GPU; None if no host has one."""
    fitting: Batching | None
    """The largest micro-batches that the smallest GPU holds, with as many as make the same step; None without a GPU,
    or if not even the smallest fits."""
    checkpoint_bytes: int
    """Weights and optimizer."""
    disk_bytes: int
    """All the checkpoints that the settings keep, and one that is being written."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, what follows, and whether to start."""

    machines: tuple[Machine, ...]
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
    """Alone: what a second host like this one would mean."""
    bottleneck: str
    """data, compute, waiting or network."""
    advice: str
    """One sentence: the bottleneck, and what to change."""
    notes: tuple[str, ...]
    reasons_against: tuple[str, ...]

    @property
    def advises_against(self) -> bool:
        """Whether to change something before starting."""
        return bool(self.reasons_against)

    @property
    def chosen(self) -> Prediction:
        """What the settings lead to."""
        return next(prediction for prediction in self.predictions if prediction.chosen)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        answer = {**asdict(self), "advises_against": self.advises_against}
        if self.needs.gpu_memory is not None:
            answer["needs"]["gpu_memory"] = self.needs.gpu_memory.as_dict()
        return answer
