"""What a run would take on cards that nobody has rented yet: arithmetic from data sheets, nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.cards import Card
from tandem.config import Config, contradictions
from tandem.corpus.prepared import PreparedCorpus
from tandem.doctor.card_work import TARGET_FILL, CardSpeed, MicroBatchWork, micro_batch_work, update_seconds
from tandem.doctor.figures import HOUR
from tandem.errors import TandemError
from tandem.model.memory_estimate import USABLE_SHARE, MemoryEstimate, estimate_memory, largest_tokens
from tandem.report.figures import size

if TYPE_CHECKING:
    from tandem.doctor.card_exchange import CardExchange

# Of a corpus that is still to be made.
LIKELY_VOCABULARY = 32_000
# PyTorch's builds for the newest CUDA versions begin with Turing; older cards need the one for CUDA 12.6.
FIRST_CAPABILITY_OF_ALL_BUILDS = (7, 5)
# A run that spends more of its time than this on the network is bound by it.
NETWORK_SHARE = 0.3
# Processes wait for the one with the longest sentences in every step: four A100 do 3.49 times the work of one in
# NVIDIA's table (DeepLearningExamples, PyTorch/Translation/Transformer).
WAITING_FACTOR = 4 / 3.49
# Steps between these factors times the predicted one are no surprise: published ones of the same model lie there.
SPREAD = (0.8, 1.3)
# A strategy between hosts may keep the gradient as it was, what rounding left over, and the weights of a round's start.
EXCHANGE_VECTORS = 3
MATRIX, MEMORY, LAUNCHES, NETWORK = "matrix arithmetic", "memory bandwidth", "kernel launches", "network"
REMEDIES = {
    MATRIX: "a faster or one more card shortens the run",
    MEMORY: "a card with faster memory shortens the run",
    LAUNCHES: "the card waits for its host: more batch.tokens in fewer batch.micro_batches shorten the run",
    NETWORK: "a faster link or a thriftier exchange shortens the run",
}


@dataclass(frozen=True)
class Machines:
    """What would be rented."""

    card: Card
    cards: int = 1
    """On each host."""
    hosts: int = 1
    link_mbit: float = 1_000
    """Rate of the hosts' network; of no matter for one host."""
    price_per_hour: float | None = None
    """Of one host."""

    @property
    def processes(self) -> int:
        return self.cards * self.hosts


@dataclass(frozen=True)
class Batching:
    """How a step is cut up."""

    tokens: int
    """Most tokens on either side of a micro-batch."""
    micro_batches: int
    """In a step, dealt out to the processes."""

    @property
    def target_tokens(self) -> float:
        """Non-padding target tokens in a step."""
        return TARGET_FILL * self.tokens * self.micro_batches


@dataclass(frozen=True)
class CardPrediction:
    """A run that was not run: what it would take, what bounds it, and how far off that may be."""

    machines: Machines
    precision: str
    vocab_size: int
    batching: Batching
    max_steps: int
    step_seconds: float
    step_seconds_range: tuple[float, float]
    """Where the step time may well lie."""
    tokens_per_second: float
    """Non-padding target tokens."""
    hours: float
    """For max_steps; evaluations and checkpoints come on top."""
    cost: float | None
    """At the price of a machine-hour, all hosts together."""
    parts: dict[str, float]
    """Seconds of a step. Launches overlap with arithmetic and memory: only what they exceed them by counts."""
    bound: str
    """The part that a run waits for most."""
    exchange: CardExchange | None
    """None for one process."""
    memory: MemoryEstimate
    fitting: Batching | None
    """The largest micro-batches that the card holds; None if none fit."""
    notes: tuple[str, ...]
    reasons_against: tuple[str, ...]

    @property
    def advises_against(self) -> bool:
        """Whether to change something before starting."""
        return bool(self.reasons_against)

    @property
    def advice(self) -> str:
        """One sentence: what bounds the run, and what would help."""
        return f"Bound by {self.bound}; {REMEDIES[self.bound]}."

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        more = {"memory": self.memory.as_dict(), "advice": self.advice, "advises_against": self.advises_against}
        return {"predicted": True, **asdict(self), **more}


def predict_on_card(config: Config, vocab_size: int, machines: Machines) -> CardPrediction:
    """Step time, hours, cost and memory of a run with these settings on these machines."""
    card, config = machines.card, settled_on(config, machines.card)
    precision = config.train.precision
    batching = batching_on(config, vocab_size, card.memory_bytes, machines.processes)
    speed = CardSpeed.of(card, precision, tf32=config.train.tf32)
    work = micro_batch_work(config.model, vocab_size, batching.tokens, precision, speed)
    update = update_seconds(config.model, vocab_size, precision, speed)
    share = math.ceil(batching.micro_batches / machines.processes)
    alone = share * work.seconds + update
    exchange = _exchange(config, vocab_size, precision, machines, alone, work) if machines.processes > 1 else None
    step = exchange.chosen.step_seconds if exchange else alone
    hours = exchange.chosen.hours if exchange else step * config.train.max_steps / HOUR
    start_hours = hours - step * config.train.max_steps / HOUR
    parts = _parts(work, share, update, exchange)
    vectors = EXCHANGE_VECTORS if machines.hosts > 1 else 0
    memory = estimate_memory(config.model, vocab_size, batching.tokens, precision, exchange_vectors=vectors)
    fitting = fitting_batching(config, vocab_size, card.memory_bytes, batching)
    return CardPrediction(
        machines=machines,
        precision=precision,
        vocab_size=vocab_size,
        batching=batching,
        max_steps=config.train.max_steps,
        step_seconds=step,
        step_seconds_range=(step * SPREAD[0], step * SPREAD[1]),
        tokens_per_second=batching.target_tokens / step,
        hours=hours,
        cost=None if machines.price_per_hour is None else machines.price_per_hour * machines.hosts * hours,
        parts=parts,
        # What the first steps of a run with local steps take beyond the others is spent on the network.
        bound=NETWORK if start_hours > NETWORK_SHARE * hours else _bound(work, parts),
        exchange=exchange,
        memory=memory,
        fitting=fitting,
        notes=(*_notes(machines, precision, memory), *_notes_on_sharing(machines, batching, exchange, start_hours)),
        reasons_against=tuple(_reasons(machines, memory, fitting, exchange)),
    )


def settled_on(config: Config, card: Card) -> Config:
    """The settings with the precision that `auto` takes on the card, if they agree with it."""
    precision = card.precision(config.train.precision)
    settled = config.model_copy(update={"train": config.train.model_copy(update={"precision": precision})})
    if faults := "; ".join(map(str, contradictions(settled))):
        raise TandemError(f"train.precision={config.train.precision} is {precision} on {card.name}: {faults}")
    return settled


def likely_vocabulary(config: Config, corpus: Path | None) -> int:
    """Pieces of the prepared corpus, or of the one that the settings would make."""
    if corpus is not None:
        return PreparedCorpus.open(corpus).tokenizer.vocab_size
    return config.corpus.vocab_size or LIKELY_VOCABULARY


def batching_on(config: Config, vocab_size: int, memory_bytes: int, processes: int) -> Batching:
    """Micro-batches as the settings have them; `auto` the largest that fit, equally many a process."""
    batch = config.batch
    if batch.tokens == "auto":
        longest = config.model.max_length
        fitting = max(min(largest_tokens(config, vocab_size, memory_bytes), batch.step_tokens), longest)
        each = math.ceil(math.ceil(batch.step_tokens / fitting) / processes)
        return Batching(max(batch.step_tokens // (each * processes), longest), each * processes)
    if batch.micro_batches < processes:
        tokens = batch.tokens * batch.micro_batches // processes
        raise TandemError(
            f"batch.micro_batches: {batch.micro_batches} cannot keep {processes} processes busy; "
            f"batch.micro_batches={processes} batch.tokens={tokens} makes steps of about the same size"
        )
    return Batching(batch.tokens, batch.micro_batches)


def _exchange(
    config: Config, vocab_size: int, precision: str, machines: Machines, alone: float, work: MicroBatchWork
) -> CardExchange:
    """What processes exchange; only this needs PyTorch, which takes seconds to import."""
    from tandem.doctor.card_exchange import predict_exchange

    return predict_exchange(
        config,
        vocab_size,
        machines,
        remembers=precision != "float16",
        together_seconds=alone * WAITING_FACTOR,
        apart_seconds=alone * (WAITING_FACTOR if machines.cards > 1 else 1.0),
        micro_batch_seconds=work.seconds,
    )


def _parts(work: MicroBatchWork, share: int, update: float, exchange: CardExchange | None) -> dict[str, float]:
    computed = work.matrix_seconds + work.memory_seconds
    parts = {
        MATRIX: share * work.matrix_seconds,
        MEMORY: share * work.memory_seconds + update,
        LAUNCHES: share * max(work.launch_seconds - computed, 0.0),
    }
    if exchange is not None:
        parts |= {
            "waiting": exchange.waiting_seconds(sum(parts.values())),
            NETWORK: exchange.network_seconds,
        }
    return parts


def _bound(work: MicroBatchWork, parts: dict[str, float]) -> str:
    """The network if it takes longer than any part of computing; else the host if the card waits for it."""
    computing = MATRIX if parts[MATRIX] >= parts[MEMORY] else MEMORY
    if parts.get(NETWORK, 0.0) > parts[computing]:
        return NETWORK
    return LAUNCHES if work.launch_seconds > work.matrix_seconds + work.memory_seconds else computing


def _notes(machines: Machines, precision: str, memory: MemoryEstimate) -> Iterator[str]:
    card = machines.card
    if precision == "bfloat16" and not card.bfloat16_native:
        yield f"{card.name} has no bfloat16 and emulates it slowly: set train.precision=float16."
    if precision == "float16" and machines.hosts > 1:
        yield "float16 rules out int4 and diloco, which remember gradients: train.precision=float32 would allow them."
    if precision == "float32" and card.tensor_cores:
        yield "train.precision=float32 leaves most of the card's speed unused: auto multiplies in half precision."
    if card.capability < FIRST_CAPABILITY_OF_ALL_BUILDS:
        yield f"{card.name} needs a build of PyTorch for an older CUDA (docs/gpus.md)."
    if USABLE_SHARE * card.memory_bytes < memory.total <= card.memory_bytes:
        yield f"Memory is tight: {size(memory.total)} of {size(card.memory_bytes)}; batch.tokens may be too many."


def _notes_on_sharing(
    machines: Machines, batching: Batching, exchange: CardExchange | None, start_hours: float
) -> Iterator[str]:
    """What is odd about the way that processes share the work."""
    if batching.micro_batches % machines.processes:
        even = math.ceil(batching.micro_batches / machines.processes) * machines.processes
        yield (
            f"{batching.micro_batches} micro-batches do not go evenly into {machines.processes} processes: some idle "
            f"while others work; batch.micro_batches={even} keeps all busy."
        )
    if exchange is not None and exchange.chosen.kind == "diloco":
        yield f"{exchange.chosen.exchange} cost some quality, which an all-reduce does not (docs/slow-networks.md)."
        yield f"The first steps, taken together with 4-bit gradients, make the run {start_hours:.1f} h longer."


def _reasons(
    machines: Machines, memory: MemoryEstimate, fitting: Batching | None, exchange: CardExchange | None
) -> Iterator[str]:
    if memory.total > machines.card.memory_bytes:
        yield too_little_memory(machines.card.name, memory, machines.card.memory_bytes, fitting)
    if exchange is not None and exchange.reason_against is not None:
        yield exchange.reason_against


def fitting_batching(config: Config, vocab_size: int, memory_bytes: int, batching: Batching) -> Batching | None:
    """The largest micro-batches that the memory holds, as many as make steps of the same size; None if none fit."""
    tokens = largest_tokens(config, vocab_size, memory_bytes)
    if not tokens:
        return None
    return Batching(tokens, math.ceil(batching.tokens * batching.micro_batches / tokens))


def too_little_memory(name: str, memory: MemoryEstimate, there: int, fitting: Batching | None) -> str:
    """What to say of a card that cannot hold the training, and of the settings with which it could."""
    need = f"{name}: training needs {size(memory.total)} on a GPU, which has {size(there)}"
    if fitting is None:
        return f"{need}, too little for any micro-batch: take a smaller model or a larger card"
    return f"{need}: set batch.tokens={fitting.tokens} batch.micro_batches={fitting.micro_batches}"
