"""The records of a run: journal, console, TensorBoard, `tandem watch` and report are made from these and nothing else.

The types are also what a journal is checked against when it is read. A field that was added later has a default, so
that older journals can still be read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, AliasChoices, Field

from tandem.metrics import BLEU, BY_DEV_BLEU, LOSS, criterion_text

# No count and no measure of a run comes near it: larger numbers are damage, and their sums would overflow.
LARGEST = 10**18
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
"""A finite number. Fields that are plain `float` may be nan or infinite: a loss that is, is worth showing."""
PositiveCount = Annotated[int, Field(gt=0, le=LARGEST)]
PositiveNumber = Annotated[float, Field(gt=0, le=LARGEST)]
CriterionText = Annotated[str, AfterValidator(criterion_text)]


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something that happened at a step."""

    time: datetime | None = field(default=None, compare=False, repr=False)
    """When it was written to the journal that it was read from; None in the process that records it."""
    kind: str
    step: Count

    @property
    def timestamp(self) -> float:
        """Its time in seconds since 1970."""
        assert self.time is not None
        return self.time.timestamp()

    def as_dict(self) -> dict[str, Any]:
        """The record as it is written to a journal, but for the time."""
        return {name: value for name, value in asdict(self).items() if name != "time"}


@dataclass(frozen=True, kw_only=True)
class Started(Record):
    """A process began, or began again, to work on the run."""

    kind: Literal["started"] = "started"
    max_steps: Count
    version: str
    host: str
    hosts: list[str]
    interface: str | None
    """Network interface through which this process talks to the others."""
    address: str | None
    process: Count
    rank: Count
    world_size: Count
    device: str
    threads: Count
    precision: str
    parameters: Count
    corpus_digest: str
    training_pairs: Count
    pairs_left_out: Count
    padding_share: Number
    steps_per_epoch: Number
    startup_seconds: Number
    card: str | None = None
    """The GPU's name, as its driver writes it; None on a processor."""
    card_memory_bytes: Count | None = None
    batch_tokens: Count | None = None
    """Most tokens on either side of a micro-batch, as chosen where that was left open."""
    micro_batches: Count | None = None
    parallel_micro_batches: Annotated[
        Count, Field(validation_alias=AliasChoices("parallel_micro_batches", "lanes"))
    ] = 1
    """Micro-batches that a process works through in parallel, formerly `lanes`: each has its share of the threads."""
    compiled: bool = False
    """Whether torch.compile fuses each layer's kernels."""
    deterministic: bool | None = None
    """Whether the same steps give the same bits: always on a processor, on a GPU if it was asked for. None in journals
    of versions that did not write it."""
    frozen_parameters: Count = 0
    """Parameters that are not trained."""
    origin: str | None = None
    """The checkpoint of another run that the run began with, in words; None if it began with weights of its own."""
    first_step: Count = 0
    """The step that the run began after: 0, or that of the other run's optimizer."""
    best_by: CriterionText = str(BY_DEV_BLEU)
    """What makes an evaluation the best: a metric on a dev set."""

    @property
    def model_size(self) -> str:
        """The number of parameters in words, and how many of them are not trained."""
        frozen = f" ({self.frozen_parameters / 1e6:.1f} M frozen)" if self.frozen_parameters else ""
        return f"{self.parameters / 1e6:.1f} M parameters{frozen}"

    @property
    def device_name(self) -> str:
        """What the processes compute on: the cards, one for each process, by the name of this process's; or `cpu`."""
        if self.card is None:
            return self.device
        return f"{self.world_size} x {self.card}" if self.world_size > 1 else self.card


@dataclass(frozen=True, kw_only=True)
class Planned(Record):
    """The exchange strategy of this session, and why it was chosen."""

    kind: Literal["planned"] = "planned"
    exchange: str
    local_steps: Count
    reason: str
    slow_downs: dict[str, float]
    """How many times longer a step was expected to be than its compute, for each strategy that was considered."""
    bytes_per_value: float | None = None
    """Bytes in which a float32 value crosses the network; None if the strategy does not say."""


@dataclass(frozen=True, kw_only=True)
class Progressed(Record):
    """The steps since the last log line: means over these steps, losses in nats per target token over all processes."""

    kind: Literal["progressed"] = "progressed"
    max_steps: Count
    steps: PositiveCount
    epoch: Number
    train_loss: float
    objective: float
    learning_rate: float
    gradient_norm: float
    target_tokens: Count
    tokens_per_second: Number
    step_seconds: PositiveNumber
    seconds_left: Number
    exchanged_bytes: Count
    """Bytes that this process sent for the exchange, by calculation."""
    network_sent_bytes: Count
    """Bytes seen on the interface between processes (the loopback, if all are on one host), whoever sent them."""
    network_received_bytes: Count
    seconds: dict[str, Number]


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """One GPU in a resource sample; shares are of 1, `None` is what the card does not report."""

    name: str
    uuid: str | None = None
    """As `nvidia-smi -L` writes it."""
    index: Count | None = None
    """The driver's number of it on its host, which nvidia-smi shows; not the one that a process knows it by."""
    utilisation: Number | None
    """Share of the time in which any kernel ran, be it a loop that waits for the network."""
    memory_used_bytes: Count | None
    memory_total_bytes: PositiveCount | None
    watts: Number | None
    watts_cap: Number | None


def _rest(busy: float, own: float | None, steal: float | None) -> float | None:
    """What is left of the busy time without the run's own and the hypervisor's; None if the run's is not known."""
    return None if own is None else max(busy - own - (steal or 0.0), 0.0)


@dataclass(frozen=True, kw_only=True)
class HostUse:
    """A host's resources during some seconds; rates are means, shares are of 1."""

    host: str
    seconds: PositiveNumber
    cpu: Number
    """Share of all cores' time in which they were not idle, whoever had them."""
    memory_used_bytes: Count
    memory_total_bytes: PositiveCount
    disk_read_mbyte_per_second: Number
    disk_written_mbyte_per_second: Number
    interface: str | None
    """Network interface over which the processes of the run talk to each other."""
    link_mbit_per_second: Count | None
    """Speed of that interface, where the system knows it."""
    sent_mbyte_per_second: Number
    sent_mbit_per_second: Number
    received_mbyte_per_second: Number
    received_mbit_per_second: Number
    gpus: list[GpuUse]
    cpu_own: Number | None = None
    """Share of all cores' time that the run's processes had; None where not all of them are in sight."""
    cpu_steal: Number | None = None
    """Share of all cores' time that the hypervisor gave to other guests; None where the system does not count it."""

    @property
    def cpu_others(self) -> float | None:
        """Share of all cores' time that other programs of this host had."""
        return _rest(self.cpu, self.cpu_own, self.cpu_steal)


@dataclass(frozen=True, kw_only=True)
class Sampled(Record):
    """One resource sample of a host, taken every second or every few while some step was under way.

    By the host's first process.
    """

    kind: Literal["sampled"] = "sampled"
    use: HostUse


@dataclass(frozen=True, kw_only=True)
class HostSummary:
    """Means of a host's resource samples over a stretch of steps; shares are of 1, `None` where there is no value."""

    host: str
    cpu: Number
    memory: Number
    sent_mbit_per_second: Number
    received_mbit_per_second: Number
    link_mbit_per_second: Number | None
    gpu_count: Count
    gpu_utilisation: Number | None
    gpu_utilisation_least: Number | None = None
    """Utilisation of the least busy card."""
    gpu_utilisation_most: Number | None = None
    gpu_memory: Number | None
    gpu_power: Number | None
    """Watts against the cap."""
    seconds: dict[str, Number]
    """Seconds by part, over the last stretch of steps of the host's first process."""
    cpu_own: Number | None = None
    """As in a sample, like `cpu_steal`."""
    cpu_steal: Number | None = None

    @property
    def cpu_others(self) -> float | None:
        """Share of all cores' time that other programs of this host had."""
        return _rest(self.cpu, self.cpu_own, self.cpu_steal)

    @property
    def link_share(self) -> float | None:
        """How much of its link the host used, in the busier direction."""
        busier = max(self.sent_mbit_per_second, self.received_mbit_per_second)
        return busier / self.link_mbit_per_second if self.link_mbit_per_second else None


@dataclass(frozen=True, kw_only=True)
class Surveyed(Record):
    """Summaries of all hosts; in the journal of each host's first process, so that any one journal shows all hosts."""

    kind: Literal["surveyed"] = "surveyed"
    hosts: list[HostSummary]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sentence of a dev set and the model's translation of it."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    """A metric beside loss and BLEU, of the same translations as BLEU."""

    metric: str
    """Its name in the settings, such as chrf."""
    value: Number
    signature: str


@dataclass(frozen=True, kw_only=True)
class Evaluated(Record):
    """The model measured on a split; its BLEU, while it cannot translate yet, on the first sentences.

    A run with several dev sets writes one for each.
    """

    kind: Literal["evaluated"] = "evaluated"
    split: str
    eval_loss: float
    perplexity: float
    bleu: float
    signature: str
    sentences: Count
    """Translated ones, which BLEU is of."""
    all_sentences: Count | None = None
    """Those of the split; None in journals of versions that translated them all."""
    seconds: Number
    samples: list[Sample] = field(default_factory=list)
    metrics: list[MetricValue] = field(default_factory=list)

    @property
    def values(self) -> dict[str, float]:
        """All that was measured, by the names of metrics."""
        return {LOSS: self.eval_loss, BLEU: self.bleu, **{found.metric: found.value for found in self.metrics}}

    @property
    def first_sentences(self) -> int | None:
        """How many sentences BLEU is of, where that is not all of the split."""
        return None if self.all_sentences is None or self.sentences >= self.all_sentences else self.sentences


@dataclass(frozen=True, kw_only=True)
class Saved(Record):
    """A checkpoint is safely on disk."""

    kind: Literal["saved"] = "saved"
    path: str
    bytes: Count
    seconds: Number


@dataclass(frozen=True, kw_only=True)
class RolledBack(Record):
    """Training blew up at this step, and went back to an earlier one to go on with other data."""

    kind: Literal["rolledback"] = "rolledback"
    to_step: Count
    reason: str
    """What happened, without a full stop."""
    skipped_from: Count
    """The first step that is taken with other data than before."""
    skipped_steps: Count
    """Steps whose data is skipped."""

    @property
    def remedy(self) -> str:
        """What was done about it, in words."""
        skipped = f"skipped the data of {self.skipped_steps:,} steps from step {self.skipped_from:,} on"
        return f"went back to {f'step {self.to_step:,}' if self.to_step else 'the beginning'} and {skipped}"


# What the reason of an end says, one or the other, if training blew up; a report looks for these words.
NOT_FINITE, EXPLODED = "the gradient is not finite", "the loss has exploded"
# How a notice says that memory did not suffice and steps go on in smaller parts; a report looks for these words.
WORKED_IN_PARTS = "each micro-batch is worked through in"
# How a notice says from where a run continues that passed over newer checkpoints; a report looks for these words.
CONTINUING_FROM = "continuing from step"


@dataclass(frozen=True, kw_only=True)
class Noticed(Record):
    """Something the user should know and need not act on."""

    kind: Literal["noticed"] = "noticed"
    message: str


@dataclass(frozen=True, kw_only=True)
class Silent(Record):
    """Processes of a host were found silent: one process of each host writes it down."""

    kind: Literal["silent"] = "silent"
    ranks: list[Count]
    host: str
    cause: str
    """hanging, stopped or unreachable."""
    phase: str
    """The last phase of the first of them that is known."""
    seconds: Number
    """For how long they were silent by then, or in that phase."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Returned(Record):
    """A silent process goes on."""

    kind: Literal["returned"] = "returned"
    rank: Count
    host: str
    seconds: Number
    """For how long it was silent."""
    message: str


# Why a process ended that took its last step, and how the reason of one that failed begins; a report looks for these.
FINISHED, FAILED = "finished", "failed: "


@dataclass(frozen=True, kw_only=True)
class Ended(Record):
    """A process stopped working on the run, and why."""

    kind: Literal["ended"] = "ended"
    reason: str
    best_bleu: Number | None
    """Dev BLEU of the best evaluation."""
    best_step: Count | None
    seconds: dict[str, Number]
    """Seconds by part, since the last stretch of steps."""
    signal: str | None = None
    """Name of the signal that asked for it, such as SIGTERM."""
    best_first_sentences: Count | None = None
    """How many of the first dev sentences the best BLEU is of; None if it is of all."""
    best_by: CriterionText = str(BY_DEV_BLEU)
    """What made it the best: a metric on a dev set."""
    best_value: float | None = None
    """That metric; None if there was no evaluation, and in journals of versions that knew nothing but dev BLEU."""
    start_bleu: Number | None = None
    """BLEU before the first step, of a run that began with another one's model."""
    at_once: bool = False
    """Whether it ended without the others, at a second signal or when its time to save and stop was over."""

    @property
    def failed(self) -> bool:
        return self.reason.startswith(FAILED)


AnyRecord: TypeAlias = Annotated[
    Started
    | Planned
    | Progressed
    | Sampled
    | Surveyed
    | Evaluated
    | Saved
    | RolledBack
    | Noticed
    | Silent
    | Returned
    | Ended,
    Field(discriminator="kind"),
]
"""All kinds of records, told apart by `kind`."""
