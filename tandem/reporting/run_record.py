"""What is known of a run, whatever program made it. Every answer of a report is worked out from this alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

State = Literal["running", "finished", "stopped", "crashed", "unknown"]
"""`finished` came to its planned end, `stopped` ended early on purpose, `crashed` ended by a fault; `running` may be
one that was killed without a word a moment ago; `unknown` where nothing tells."""


Axis = Literal["step", "epoch"]
"""What the points of all curves of a run are counted in."""

Holding = Literal["weights", "optimizer", "other"]
"""What a file of a checkpoint holds."""


# The median of normal deviations is this part of their standard deviation.
MEDIAN_OF_NORMAL = 0.6745


@dataclass(frozen=True)
class Curve:
    """Values over steps or epochs, in order, also values that are not finite: they are evidence."""

    at: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """A curve of (step, value) in any order; of a step that was taken twice, after a resume, the later counts.

        A damaged log may have a step of hundreds of digits, which is too large for a number: it has no place.
        """
        last = {step: value for step, value in points if math.isfinite(step)}
        steps = sorted(last)
        return cls(np.array(steps, dtype=np.float64), np.array([last[step] for step in steps], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.at)

    @property
    def finite(self) -> Curve:
        """The curve without the values that are not finite."""
        kept = np.isfinite(self.values)
        return Curve(self.at[kept], self.values[kept])

    @property
    def median(self) -> float | None:
        """The median of the finite values; None if there are none."""
        return float(np.median(self.finite.values)) if len(self.finite) else None

    def scaled(self, factor: float) -> Curve:
        return Curve(self.at, factor * self.values)


def robust_spread(values: FloatArray) -> float:
    """Standard deviation of normal values by their median deviation, which a few outliers do not move."""
    return float(np.median(np.abs(values - np.median(values)))) / MEDIAN_OF_NORMAL


NOTHING = Curve.of([])
CURVES = ("train_loss", "eval_loss", "bleu", "learning_rate", "step_seconds")
"""The curves of a run that every format may have."""
NOT_TRAINING = ("evaluation", "checkpoint")
"""What a run spends time on beside its training steps."""


@dataclass(frozen=True, kw_only=True)
class TrainingSession:
    """One start of the training program; a resumed run has several."""

    first_step: float
    last_step: float
    started: float | None = None
    """Unix time, as all moments here."""
    ended: float | None = None
    reason: str | None = None
    """Why it ended, in words; None if nothing tells."""
    signal: str | None = None
    """Name of the signal that asked it to stop."""
    startup_seconds: float | None = None
    hosts: tuple[str, ...] = ()
    """The hosts that took part; empty if that is not known."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """Processes and devices of a run, and how the work was shared out; None where it is not known."""

    ranks: int | None = None
    hosts: int | None = None
    parameters: int | None = None
    gradient_bytes_per_value: float | None = None
    """Bytes of a gradient value as it crosses the network."""
    exchange: str | None = None
    """How gradients cross: allreduce (a ring), bf16, int4, diloco ..."""
    local_steps: int = 1
    device: str | None = None
    """What it computes on, e.g. `Tesla V100-PCIE-16GB` or `cpu`."""
    precision: str | None = None
    cards: tuple[str, ...] = ()
    """Names of the GPUs, each kind once; empty on processors."""
    card_memory_bytes: int | None = None
    """Memory of the first process's GPU."""
    compiled: bool | None = None
    """Whether layers ran as compiled, fused kernels."""
    deterministic: bool | None = None
    """Whether the same steps would give the same bits again, in all sessions."""
    batch_tokens: int | None = None
    """Most tokens on either side of a micro-batch, padding included."""
    micro_batches: int | None = None
    """Micro-batches in a step of all ranks together."""
    tokens_per_step: float | None = None
    """Source and target tokens of all ranks together."""
    most_positions_per_rank: float | None = None
    """Positions that a rank computes in a step at the very most: sentences times the longest length allowed."""


@dataclass(frozen=True, kw_only=True)
class GpuCurves:
    """What one GPU did over the steps. Keys of `curves`: `gpu_utilisation`, `gpu_memory`, `gpu_power`."""

    index: int
    """The driver's number of the GPU on its host."""
    curves: dict[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostCurves:
    """What one host did over the steps. Keys of `curves`: `cpu` and, of it, `cpu_own` (the run), `cpu_others` (other
    programs), `cpu_steal` (other guests of the hypervisor), `memory`, `gpu_utilisation`, `gpu_memory`, `gpu_power` (all
    shares of 1, `gpu_power` of the cap), `sent`, `received` (Mbit/s), `disk_read`, `disk_written`
    (MB/s); those of GPUs are means over the cards that the run used."""

    name: str
    interface: str | None = None
    link_mbit_per_second: float | None = None
    curves: dict[str, Curve] = field(default_factory=dict)
    gpus: tuple[GpuCurves, ...] = ()
    """Each card by itself, where the data tells them apart."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate that the settings promise."""

    explanation: str
    """In words, with its numbers: rises linearly over 8,000 steps to 7.0e-4, then falls with the root of the step."""
    rate: Callable[[float], float] | None = None
    """The learning rate at a step, where the settings say it exactly."""


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """One language of the training text, raw and cleaned; None where it is not known."""

    language: str
    raw_lines: int | None = None
    raw_bytes: int | None = None
    cleaned_lines: int | None = None
    cleaned_bytes: int | None = None
    tokens: int | None = None
    """Pieces of the vocabulary that the cleaned text makes, without padding."""
    files: tuple[str, ...] = ()
    """The files it came from, each with the beginning of its checksum."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFile:
    """One file of a checkpoint."""

    name: str
    bytes: int
    what: str
    holds: Holding


@dataclass(frozen=True, kw_only=True)
class CheckpointFacts:
    """A checkpoint on the disk, or what a log says of it."""

    path: str
    step: int | None
    files: tuple[CheckpointFile, ...]
    kept: int | None = None
    """Number of checkpoints on the disk."""
    kept_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class MicroBatchSplit:
    """A step from which on micro-batches were worked through in parts, because a GPU had too little memory."""

    step: float
    parts: int


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is known of a run."""

    source: str
    """What was read, e.g. `Tandem run`, `OpenSeq2Seq log`."""
    path: str
    state: State
    axis: Axis = "step"
    problems: tuple[str, ...] = ()
    """What could not be read or did not fit, each in a sentence."""
    failure: str | None = None
    """What ended a crashed run, in a sentence."""
    not_finite: bool = False
    """Whether the program itself gave up because its numbers were not finite any more, or its loss had exploded."""
    roll_backs: tuple[str, ...] = ()
    """How often training blew up and went back to go on with other data: each in a sentence without a full stop."""
    sessions: tuple[TrainingSession, ...] = ()
    origin: str | None = None
    """The other model that the run began with, in words; None if it began with weights of its own."""
    first_step: float = 0.0
    """The step that the run began after; above 0 if it took over another run's optimizer and step."""
    steps_before: float = 0.0
    """Steps from before the data begins, as in a run that was brought back from a mirror."""
    max_steps: float | None = None
    train_loss: Curve = NOTHING
    eval_loss: Curve = NOTHING
    """Nats per token, or per sentence; perplexities are turned into their logarithm."""
    tokens_per_loss_value: float = 1.0
    """Tokens that a value of the evaluation loss stands for: 1, or about a sentence's where it is per sentence."""
    bleu: Curve = NOTHING
    """BLEU from 0 to 100."""
    bleu_note: str | None = None
    """How BLEU was computed: a sacreBLEU signature, or what makes it incomparable."""
    bleu_first_sentences: dict[float, int] = field(default_factory=dict)
    """How many of the first sentences BLEU is of, by step; those of all sentences are left out."""
    dev_curves: dict[str, Curve] = field(default_factory=dict)
    """All that was measured beside loss and BLEU on dev, by dev set and metric: `news/bleu`, `dev/chrf`."""
    dev_notes: tuple[str, ...] = ()
    """How the metrics beside BLEU were computed."""
    learning_rate: Curve = NOTHING
    step_seconds: Curve = NOTHING
    """Mean time of a training step over the stretch that ends there, evaluations and checkpoints not counted."""
    steps_per_point: float | None = None
    """Steps between two points of `step_seconds`, if each is a mean over several."""
    parts: dict[str, Curve] = field(default_factory=dict)
    """The first process's seconds per step by cause: data, compute, communication, waiting, optimizer, evaluation,
    checkpoint, other."""
    exchanged_bytes: Curve = NOTHING
    """Bytes a step that each host sends for the exchange, by calculation."""
    network_bytes: Curve = NOTHING
    """Bytes a step that the card of the first host has sent and, separately counted, received; the larger of both."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of the whole run by cause, as in `parts`, steps that were taken again included."""
    repeated_steps: float = 0.0
    """Steps that were taken again, because an interruption had lost them or training had blown up."""
    silences: tuple[tuple[str, float], ...] = ()
    """Processes that gave no sign of life for some time and then went on, each with the seconds."""
    splits: tuple[MicroBatchSplit, ...] = ()
    team: Team = Team()
    hosts: tuple[HostCurves, ...] = ()
    schedule: Schedule | None = None
    texts: tuple[TrainingText, ...] = ()
    """The source language, then the target."""
    checkpoint: CheckpointFacts | None = None
    events: tuple[tuple[float, str], ...] = ()
    """Notable things and their steps: resumed, changed settings, notes."""

    @property
    def loss_unit(self) -> str:
        return "nats per token" if self.tokens_per_loss_value == 1 else "nats per sentence"

    @property
    def training_seconds(self) -> float:
        """Time of the run without evaluations and checkpoints."""
        return sum(seconds for part, seconds in self.seconds.items() if part not in NOT_TRAINING)

    @property
    def training_shares(self) -> dict[str, float]:
        """Each part's share of the training time; empty where no clock tells the parts of a step."""
        whole = self.training_seconds or 1.0
        parts = self.seconds if "compute" in self.seconds else {}
        return {part: seconds / whole for part, seconds in parts.items() if part not in NOT_TRAINING}

    @property
    def holds_no_step(self) -> bool:
        """Whether all steps are from before the data begins, as in a finished run from a mirror, started again."""
        return 0 < self.steps_before == self.last_step

    @property
    def points(self) -> int:
        """How much is known: the points of the common curves."""
        return sum(len(getattr(self, name)) for name in CURVES)

    @property
    def last_step(self) -> float:
        """The last step that anything is known of."""
        curves: list[Curve] = [getattr(self, name) for name in CURVES]
        ends = [float(curve.at[-1]) for curve in curves if len(curve)]
        return max([*ends, *(session.last_step for session in self.sessions), 0.0])
