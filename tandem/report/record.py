"""What is known of a run, whoever made it. Every answer is worked out from this and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

State = Literal["running", "finished", "stopped", "crashed", "unknown"]
"""`finished` came to its planned end, `stopped` ended early on purpose, `crashed` ended by a fault; `running` may be
one that was killed without a word a moment ago; `unknown` where nothing tells."""


Holding = Literal["weights", "optimizer", "other"]
"""What a file of a checkpoint holds."""


@dataclass(frozen=True)
class Curve:
    """Values over steps (or epochs), in order. What is not finite is kept: it is evidence."""

    at: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """In order of steps; of a step that was taken twice, after a resume, the later value counts."""
        last = dict(points)
        steps = sorted(last)
        return cls(np.array(steps, dtype=np.float64), np.array([last[step] for step in steps], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.at)

    @property
    def finite(self) -> Curve:
        kept = np.isfinite(self.values)
        return Curve(self.at[kept], self.values[kept])


NOTHING = Curve.of([])


@dataclass(frozen=True, kw_only=True)
class Session:
    """One start of the training program; a resumed run has several."""

    first_step: float
    last_step: float
    started: float | None = None
    """Unix time, as all moments here."""
    ended: float | None = None
    reason: str | None = None
    """Why it ended, in the program's words; empty if it never said."""
    startup_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Team:
    """How the work was shared out."""

    ranks: int | None = None
    hosts: int | None = None
    parameters: int | None = None
    gradient_bytes_per_value: float | None = None
    """Of a gradient value as it crosses the network; None if it is not known."""
    exchange: str | None = None
    """How gradients cross: allreduce (a ring), bf16, int4, diloco ...; None if it is not known."""
    local_steps: int = 1
    device: str | None = None
    """What it computes on, e.g. `Tesla V100-PCIE-16GB` or `cpu`."""
    precision: str | None = None
    cards: tuple[str, ...] = ()
    """Names of the GPUs, each kind once; empty on processors, or where they are not known."""
    card_memory_bytes: int | None = None
    """Of the first process's GPU."""
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
    """The driver's number of it on its host."""
    curves: dict[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostCurves:
    """What one host did over the steps. Keys of `curves`: `cpu`, `memory`, `gpu_utilisation`, `gpu_memory`,
    `gpu_power` (all shares of 1, `gpu_power` of the cap), `sent`, `received` (Mbit/s), `disk_read`, `disk_written`
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
class Text:
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
    """What it is, in a few words."""
    holds: Holding


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint on the disk, or what a log says of it."""

    path: str
    step: int | None
    files: tuple[CheckpointFile, ...]
    kept: int | None = None
    """Checkpoints there are."""
    kept_bytes: int | None = None
    """What all of them take together."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """A step from which on micro-batches were worked through in parts, because a GPU had too little memory."""

    step: float
    parts: int
    """Of each micro-batch."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run, as far as it is known."""

    source: str
    """What was read, e.g. `Tandem run`, `OpenSeq2Seq log`."""
    path: str
    state: State
    axis: Literal["step", "epoch"] = "step"
    """What `at` counts in all curves."""
    problems: tuple[str, ...] = ()
    """What could not be read or did not fit, each in a sentence."""
    failure: str | None = None
    """What ended a crashed run, in a sentence."""
    not_finite: bool = False
    """Whether the program itself gave up because its numbers were not finite any more."""
    sessions: tuple[Session, ...] = ()
    max_steps: float | None = None
    train_loss: Curve = NOTHING
    eval_loss: Curve = NOTHING
    """Nats per token, or whatever unit the program uses; perplexities are turned into their logarithm."""
    loss_unit: str = "nats per token"
    """Of the evaluation loss."""
    tokens_per_loss_value: float = 1.0
    """How many tokens one value of the evaluation loss stands for: 1, or about a sentence's where it is per sentence;
    what is judged in nats per token is divided by it."""
    bleu: Curve = NOTHING
    """From 0 to 100."""
    bleu_note: str | None = None
    """How BLEU was computed: a sacreBLEU signature, or what makes it incomparable."""
    learning_rate: Curve = NOTHING
    step_seconds: Curve = NOTHING
    """Mean time of a training step over the stretch that ends there, evaluations and checkpoints not counted."""
    steps_per_point: float | None = None
    """Steps between two points of `step_seconds`, if each is a mean over several."""
    parts: dict[str, Curve] = field(default_factory=dict)
    """Seconds per step spent on each cause of the clock (data, compute, communication, waiting, optimizer,
    evaluation, checkpoint, other), of the first process."""
    exchanged_bytes: Curve = NOTHING
    """Bytes a step that each host sends for the exchange, by calculation."""
    network_bytes: Curve = NOTHING
    """Bytes a step that the card of the first host has sent and, separately counted, received; the larger of both."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of the whole run by cause, as in `parts`, steps that were taken again included."""
    repeated_steps: float = 0.0
    """Steps that were taken again, because an interruption had lost them."""
    splits: tuple[Split, ...] = ()
    """In the order in which they came."""
    team: Team = Team()
    hosts: tuple[HostCurves, ...] = ()
    schedule: Schedule | None = None
    texts: tuple[Text, ...] = ()
    """Source first, then target."""
    checkpoint: Checkpoint | None = None
    events: tuple[tuple[float, str], ...] = ()
    """Notable things and their steps: resumed, changed settings, notes."""

    @property
    def last_step(self) -> float:
        """The last step that anything is known of."""
        curves = (self.train_loss, self.eval_loss, self.bleu, self.learning_rate, self.step_seconds)
        ends = [float(curve.at[-1]) for curve in curves if len(curve)]
        return max([*ends, *(session.last_step for session in self.sessions), 0.0])
