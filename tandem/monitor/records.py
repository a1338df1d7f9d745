"""The records of a run: journal, console, TensorBoard and report are all made from these and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something that happened at a step."""

    kind: ClassVar[str]
    step: int

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Started(Record):
    """A process began, or began again, to work on the run."""

    kind: ClassVar[str] = "started"
    max_steps: int
    version: str
    host: str
    hosts: list[str]
    interface: str | None
    """Through which this process talks to those on other hosts, or on its own."""
    address: str | None
    process: int
    rank: int
    world_size: int
    device: str
    threads: int
    precision: str
    parameters: int
    corpus_digest: str
    training_pairs: int
    pairs_left_out: int
    padding_share: float
    steps_per_epoch: float
    startup_seconds: float
    card: str | None = None
    """The GPU's name, as its driver writes it; None on a processor."""
    card_memory_bytes: int | None = None
    batch_tokens: int | None = None
    """Most tokens on either side of a micro-batch, as chosen where that was left open."""
    micro_batches: int | None = None
    compiled: bool = False
    """Whether torch.compile fuses each layer's kernels."""
    deterministic: bool = True
    """Whether the same steps give the same bits: always on a processor, on a GPU if it was asked for."""


@dataclass(frozen=True, kw_only=True)
class Planned(Record):
    """How the hosts' work is put together in this session, and why."""

    kind: ClassVar[str] = "planned"
    exchange: str
    local_steps: int
    reason: str
    slow_downs: dict[str, float]
    """How many times longer a step was expected to be than its compute, for each way that was weighed."""


@dataclass(frozen=True, kw_only=True)
class Progressed(Record):
    """A stretch of steps; means are over the stretch, losses in nats per target token over all processes."""

    kind: ClassVar[str] = "progressed"
    max_steps: int
    steps: int
    epoch: float
    train_loss: float
    objective: float
    learning_rate: float
    gradient_norm: float
    target_tokens: int
    tokens_per_second: float
    step_seconds: float
    seconds_left: float
    exchanged_bytes: int
    """Sent by this process for the exchange, by calculation."""
    network_sent_bytes: int
    """Seen on the interface between processes (the loopback, if all are on one host), whoever sent them."""
    network_received_bytes: int
    seconds: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """What one GPU did; shares are of 1, `None` is what it does not tell."""

    name: str
    uuid: str | None = None
    """As nvidia-smi -L writes it."""
    index: int | None = None
    """The driver's number of it on its host, which nvidia-smi shows; not the one that a process knows it by."""
    utilisation: float | None
    """Share of the time in which anything at all ran on it, be it a loop that waits for the network."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    watts: float | None
    watts_cap: float | None


@dataclass(frozen=True, kw_only=True)
class HostUse:
    """What a host did during some seconds; rates are means, shares are of 1."""

    host: str
    seconds: float
    cpu: float
    """Share of all cores' time."""
    memory_used_bytes: int
    memory_total_bytes: int
    disk_read_mbyte_per_second: float
    disk_written_mbyte_per_second: float
    interface: str | None
    """The card over which the processes of the run talk to each other."""
    link_mbit_per_second: int | None
    """Speed of that card, where the system knows it."""
    sent_mbyte_per_second: float
    sent_mbit_per_second: float
    received_mbyte_per_second: float
    received_mbit_per_second: float
    gpus: list[GpuUse]


@dataclass(frozen=True, kw_only=True)
class Sampled(Record):
    """A second of a host, while some step was under way; in the journal of the host's first process."""

    kind: ClassVar[str] = "sampled"
    use: HostUse


@dataclass(frozen=True, kw_only=True)
class Surveyed(Record):
    """What every host did lately; in the journal of each host's first process, so that one of them tells of all."""

    kind: ClassVar[str] = "surveyed"
    hosts: list[HostSummary]


@dataclass(frozen=True, kw_only=True)
class HostSummary:
    """A host between two surveys: means; shares are of 1, `None` where there is no such thing."""

    host: str
    cpu: float
    memory: float
    sent_mbit_per_second: float
    received_mbit_per_second: float
    link_mbit_per_second: float | None
    gpu_count: int
    gpu_utilisation: float | None
    gpu_utilisation_least: float | None = None
    """Of the card that was least in use."""
    gpu_utilisation_most: float | None = None
    gpu_memory: float | None
    gpu_power: float | None
    """Watts against the cap."""
    seconds: dict[str, float]
    """By part, of the last stretch of steps of the host's first process."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One dev sentence and what the model makes of it."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True, kw_only=True)
class Evaluated(Record):
    """The model measured on a whole split."""

    kind: ClassVar[str] = "evaluated"
    split: str
    eval_loss: float
    perplexity: float
    bleu: float
    signature: str
    sentences: int
    seconds: float
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Saved(Record):
    """A checkpoint is safely on disk."""

    kind: ClassVar[str] = "saved"
    path: str
    bytes: int
    seconds: float


# How a notice says that memory did not suffice and steps go on in smaller parts; a report looks for these words.
WORKED_IN_PARTS = "each micro-batch is worked through in"


@dataclass(frozen=True, kw_only=True)
class Noticed(Record):
    """Something the user should know and need not act on."""

    kind: ClassVar[str] = "noticed"
    message: str


@dataclass(frozen=True, kw_only=True)
class Ended(Record):
    """A process stopped working on the run, and why."""

    kind: ClassVar[str] = "ended"
    reason: str
    best_bleu: float | None
    best_step: int | None
    seconds: dict[str, float]
    """By part, since the last stretch of steps."""
