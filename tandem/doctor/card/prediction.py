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
from tandem.doctor.card.step_work import TARGET_FILL, CardSpeed, MicroBatchWork, micro_batch_work, update_seconds
from tandem.doctor.gpu_memory import Batching, batching_on, needed_and_fitting, too_little_memory
from tandem.errors import TandemError
from tandem.model.memory_estimate import USABLE_SHARE, MemoryEstimate, is_estimated
from tandem.thresholds import BOTTLENECK_SHARE
from tandem.units import HOUR, size

if TYPE_CHECKING:
    from tandem.doctor.card.exchange_cost import CardExchange

# The vocabulary of a corpus that is still to be made.
LIKELY_VOCABULARY = 32_000
# PyTorch's builds for the newest CUDA versions begin with Turing; older cards need the one for CUDA 12.6.
FIRST_CAPABILITY_OF_ALL_BUILDS = (7, 5)
# Steps between these factors times the predicted one are no surprise: published ones of the same model lie there.
SPREAD = (0.8, 1.3)
MATRIX, MEMORY, LAUNCHES, NETWORK = "matrix arithmetic", "memory bandwidth", "kernel launches", "network"
REMEDIES = {
    MATRIX: "a faster or one more card shortens the run",
    MEMORY: "a card with faster memory shortens the run",
    LAUNCHES: "the card waits for its host: more batch.tokens in fewer batch.micro_batches shorten the run",
    NETWORK: "a faster link or a thriftier exchange shortens the run",
}


@dataclass(frozen=True)
class Machines:
    """The hosts and GPUs that a prediction is for."""

    card: Card
    cards: int = 1
    """Cards in each host."""
    hosts: int = 1
    link_mbit: float = 1_000
    price_per_hour: float | None = None
    """Dollars for one host."""

    @property
    def processes(self) -> int:
        return self.cards * self.hosts


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

    @property
    def advice(self) -> str:
        """One sentence: what bounds the run, and what would help."""
        return f"Bound by {self.bound}; {REMEDIES[self.bound]}."

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about these settings on these machines."""
        return tuple(self._notes())

    @property
    def reasons_against(self) -> tuple[str, ...]:
        """What to change before starting."""
        card, reasons = self.machines.card, []
        if self.memory.total > card.memory_bytes:
            reasons.append(too_little_memory(card.name, self.memory, card.memory_bytes, self.fitting))
        if self.exchange is not None and self.exchange.chosen.is_too_slow:
            reasons.append(self.exchange.reason_against)
        return tuple(reasons)

    def _notes(self) -> Iterator[str]:
        card, memory = self.machines.card, self.memory.total
        if self.precision == "bfloat16" and not card.bfloat16_native:
            yield f"{card.name} has no bfloat16 and emulates it slowly: set train.precision=float16."
        if self.precision == "float16" and self.machines.hosts > 1:
            from tandem.cluster.exchange.strategy import known_strategies

            stateful = [each.name for each in known_strategies() if each.keeps_state and each.auto_order is not None]
            names = " and ".join(stateful)
            yield f"float16 rules out {names}, which remember gradients: train.precision=float32 would allow them."
        if self.precision == "float32" and card.tensor_cores:
            yield "train.precision=float32 leaves most of the card's speed unused: auto multiplies in half precision."
        if card.capability < FIRST_CAPABILITY_OF_ALL_BUILDS:
            yield f"{card.name} needs a build of PyTorch for an older CUDA (docs/gpus.md)."
        if USABLE_SHARE * card.memory_bytes < memory <= card.memory_bytes:
            yield f"Memory is tight: {size(memory)} of {size(card.memory_bytes)}; batch.tokens may be too many."
        micro_batches, processes = self.batching.micro_batches, self.machines.processes
        if micro_batches % processes:
            even = math.ceil(micro_batches / processes) * processes
            yield (
                f"{micro_batches} micro-batches do not go evenly into {processes} processes: some idle "
                f"while others work; batch.micro_batches={even} keeps all busy."
            )
        if self.exchange is not None and self.exchange.chosen.strategy.costs_quality:
            chosen, longer = self.exchange.chosen.exchange, self.hours - self.step_seconds * self.max_steps / HOUR
            yield f"{chosen} cost some quality, which an all-reduce does not (docs/slow-networks.md)."
            yield f"The first steps, taken together with 4-bit gradients, make the run {longer:.1f} h longer."

    def as_dict(self) -> dict[str, Any]:
        said = {"notes": self.notes, "reasons_against": self.reasons_against, "advice": self.advice}
        more = {"memory": self.memory.as_dict(), **said, "advises_against": bool(self.reasons_against)}
        return {"predicted": True, **asdict(self), **more}


def predict_on_card(config: Config, vocab_size: int, machines: Machines) -> CardPrediction:
    """Step time, hours, cost and memory of a run with these settings on these machines."""
    if not is_estimated(config.model):
        raise TandemError(
            f"model.kind={config.model.kind}: the arithmetic of --card is about the transformer; measure this model on "
            "a machine instead: `tandem doctor` without --card"
        )
    card, config = machines.card, settled_on(config, machines.card)
    precision, max_steps = config.train.precision, config.train.max_steps
    batching = batching_on(config, vocab_size, card.memory_bytes, machines.processes)
    speed = CardSpeed.of(card, precision, tf32=config.train.tf32)
    work = micro_batch_work(config.model, vocab_size, batching.tokens, precision, speed)
    update = update_seconds(config.model, vocab_size, precision, speed)
    share = math.ceil(batching.micro_batches / machines.processes)
    step, exchange = share * work.seconds + update, None
    hours = step * max_steps / HOUR
    if machines.processes > 1:
        # Needs PyTorch, which takes seconds to import.
        from tandem.doctor.card.exchange_cost import predict_exchange

        exchange = predict_exchange(config, vocab_size, machines, step, work.seconds)
        step, hours = exchange.chosen.step_seconds, exchange.chosen.hours
    parts = _parts(work, share, update, exchange)
    # What the first steps of a run with local steps take beyond the others is spent on the network.
    started_slowly = hours - step * max_steps / HOUR > BOTTLENECK_SHARE * hours
    memory, fitting = needed_and_fitting(config, vocab_size, card.memory_bytes, batching, machines.hosts)
    return CardPrediction(
        machines=machines,
        precision=precision,
        vocab_size=vocab_size,
        batching=batching,
        max_steps=max_steps,
        step_seconds=step,
        step_seconds_range=(step * SPREAD[0], step * SPREAD[1]),
        tokens_per_second=TARGET_FILL * batching.tokens * batching.micro_batches / step,
        hours=hours,
        cost=None if machines.price_per_hour is None else machines.price_per_hour * machines.hosts * hours,
        parts=parts,
        bound=NETWORK if started_slowly else _bound(work, parts),
        exchange=exchange,
        memory=memory,
        fitting=fitting,
    )


def settled_on(config: Config, card: Card) -> Config:
    """The settings with the precision that `auto` takes on the card, if they agree with it."""
    precision = card.precision(config.train.precision)
    settled = config.with_settings("train", precision=precision)
    if faults := "; ".join(map(str, contradictions(settled))):
        raise TandemError(f"train.precision={config.train.precision} is {precision} on {card.name}: {faults}")
    return settled


def likely_vocabulary(config: Config, corpus: Path | None) -> int:
    """Pieces of the prepared corpus, or of the one that the settings would make."""
    if corpus is not None:
        return PreparedCorpus.open(corpus).tokenizer.vocab_size
    return config.corpus.vocab_size or LIKELY_VOCABULARY


def _parts(work: MicroBatchWork, share: int, update: float, exchange: CardExchange | None) -> dict[str, float]:
    computed = work.matrix_seconds + work.memory_seconds
    parts = {
        MATRIX: share * work.matrix_seconds,
        MEMORY: share * work.memory_seconds + update,
        LAUNCHES: share * max(work.launch_seconds - computed, 0.0),
    }
    if exchange is not None:
        waited = exchange.compute_seconds
        parts |= {"waiting": waited - sum(parts.values()), NETWORK: exchange.chosen.step_seconds - waited}
    return parts


def _bound(work: MicroBatchWork, parts: dict[str, float]) -> str:
    """The network if it takes longer than any part of computing; else the host if the card waits for it."""
    computing = MATRIX if parts[MATRIX] >= parts[MEMORY] else MEMORY
    if parts.get(NETWORK, 0.0) > parts[computing]:
        return NETWORK
    return LAUNCHES if work.launch_seconds > work.matrix_seconds + work.memory_seconds else computing
