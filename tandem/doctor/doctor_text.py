"""What the doctor prints for people: what is there, what a run would take, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from tandem.doctor.card.step_work import TARGET_FILL
from tandem.doctor.gpu_memory import memory_text
from tandem.units import HOUR, link_rate, short_duration, size

if TYPE_CHECKING:
    from tandem.doctor.card.prediction import CardPrediction
    from tandem.doctor.diagnosis import Diagnosis
    from tandem.doctor.machine import Machine
    from tandem.doctor.predict import Prediction

# Smaller parts of a step are not worth a word.
LEAST_SHARE = 0.01


def show_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    hosts = len(diagnosis.machines)
    blocks = (
        Text("\n".join([*_machine_lines(diagnosis), *_measured_lines(diagnosis)])),
        _prediction_table(diagnosis.predictions, diagnosis.max_steps, diagnosis.price_per_hour, hosts),
        _link_table(diagnosis),
    )
    console.print(Group(*blocks, *_conclusions(diagnosis)), highlight=False)


def show_prediction(prediction: CardPrediction, console: Console) -> None:
    blocks: list[ConsoleRenderable] = [Text("\n".join(_prediction_lines(prediction)))]
    machines, exchange = prediction.machines, prediction.exchange
    if exchange is not None and machines.hosts > 1:
        price = machines.price_per_hour
        blocks.append(_prediction_table(exchange.predictions, prediction.max_steps, price, machines.hosts))
    console.print(Group(*blocks, *_conclusions(prediction)), highlight=False)


def _conclusions(found: Diagnosis | CardPrediction) -> Iterator[Text]:
    yield from map(Text, found.notes)
    yield Text(found.advice, style="bold")
    for reason in found.reasons_against:
        yield Text(f"Do not start yet: {reason}.", style="bold red")


def _machine_lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield "; ".join(dict.fromkeys(machine.versions for machine in diagnosis.machines))
    for machine in diagnosis.machines:
        yield f"{machine.host}: {', '.join(_facts(machine))}"


def _facts(machine: Machine) -> Iterator[str]:
    yield f"{_counted(machine.processes, 'process', 'es')} of {_counted(machine.threads, 'thread')}"
    yield f"{machine.processor} ({_counted(machine.cores, 'core')}), {size(machine.memory_bytes)} memory"
    for gpu in machine.gpus:
        yield f"{gpu.name} ({size(gpu.memory_bytes)})"
    if machine.driver:
        yield f"driver {machine.driver}"
    yield f"{size(machine.disk_free_bytes)} free in {machine.disk}"
    if machine.interface:
        yield machine.interface + (f" ({link_rate(machine.interface_mbit)})" if machine.interface_mbit else "")


def _counted(number: int, thing: str, plural: str = "s") -> str:
    return f"{number} {thing}{plural if number != 1 else ''}"


def _measured_lines(diagnosis: Diagnosis) -> Iterator[str]:
    needs, computing, network, reading = diagnosis.needs, diagnosis.computing, diagnosis.network, diagnosis.reading
    yield (
        f"model: {needs.parameters:,} parameters, checkpoints of {size(needs.checkpoint_bytes)}, "
        f"{size(needs.disk_bytes)} on the disk"
    )
    if needs.gpu_memory is not None:
        yield f"memory on each GPU: {memory_text(needs.gpu_memory)}"
    shown = {part: spent for part, spent in computing.parts.items() if spent > LEAST_SHARE * computing.apart_seconds}
    parts = ", ".join(f"{part} {short_duration(spent)}" for part, spent in shown.items())
    yield (
        f"compute: {computing.gflops:,.0f} GFLOP/s in matrices; a step without exchange takes "
        f"{short_duration(computing.together_seconds)}" + (f" ({parts})" if parts else "")
    )
    if reading:
        yield f"corpus: {reading.mb_per_second:,.0f} MB/s from disk, {reading.batches_per_second:,.0f} batches/s"
    if network:
        where = "between hosts" if len(diagnosis.machines) > 1 else "between processes"
        message = short_duration(network.latency_seconds)
        yield f"network: {link_rate(network.mbit_per_second)} {where}, {message} for a message"


def _prediction_table(predictions: Sequence[Prediction], max_steps: int, price: float | None, hosts: int) -> Table:
    """Every exchange plan, and what a run under it would take."""
    columns = ["exchange", "a step", "slow-down", f"{max_steps:,} steps"]
    if price is not None:
        columns.append(f"cost at ${price:,.2f} a machine-hour x {hosts}")
    table = Table(*columns, title="predicted, without evaluations and checkpoints", title_justify="left")
    shown = set()
    for prediction in predictions:
        # Of each strategy the mildest plan is enough, besides those that the settings or `auto` lead to.
        if prediction.kind in shown and not prediction.chosen and not prediction.auto:
            continue
        shown.add(prediction.kind)
        name = prediction.exchange if hosts > 1 else "inside one host"
        cells = [
            name + (" <- these settings" if prediction.chosen and hosts > 1 else ""),
            short_duration(prediction.step_seconds),
            f"{prediction.slow_down:.2f}",
            short_duration(prediction.hours * HOUR),
        ]
        if prediction.cost is not None:
            cells.append(f"${prediction.cost:,.2f}")
        table.add_row(*cells, style="bold" if prediction.chosen else None)
    return table


def _link_table(diagnosis: Diagnosis) -> Table:
    alone = len(diagnosis.machines) == 1
    title = "with a second host like this one, at best" if alone else "over other links"
    hours = f"auto: {diagnosis.max_steps:,} steps"
    table = Table("link", "all-reduce: a step", "auto takes", "auto: a step", hours, title=title, title_justify="left")
    for link in diagnosis.other_links:
        table.add_row(
            link_rate(link.mbit),
            short_duration(link.allreduce_step_seconds),
            link.auto,
            short_duration(link.auto_step_seconds),
            short_duration(link.auto_hours * HOUR),
        )
    return table


def _prediction_lines(prediction: CardPrediction) -> Iterator[str]:
    machines, batching = prediction.machines, prediction.batching
    hosts = f"{machines.hosts} hosts over {link_rate(machines.link_mbit)} with " if machines.hosts > 1 else ""
    yield f"Predicted from data sheets, nothing was measured: {hosts}{machines.cards} x {machines.card.name}"
    yield (
        f"a step: {batching.micro_batches} micro-batches of {batching.tokens:,} tokens a side, {1 - TARGET_FILL:.0%} "
        f"padding, in {prediction.precision}; vocabulary of {prediction.vocab_size:,}"
    )
    low, high = (short_duration(bound) for bound in prediction.step_seconds_range)
    yield (
        f"a step takes {short_duration(prediction.step_seconds)} (probably {low} to {high}): "
        f"{prediction.tokens_per_second:,.0f} target tokens/s"
    )
    shown = ", ".join(f"{name} {short_duration(spent)}" for name, spent in prediction.parts.items() if spent > 0)
    yield f"of which {shown}"
    whole = prediction.hours * HOUR
    low, high = (short_duration(whole * bound / prediction.step_seconds) for bound in prediction.step_seconds_range)
    cost = "" if prediction.cost is None else f", ${prediction.cost:,.2f}"
    yield (
        f"{prediction.max_steps:,} steps take {short_duration(whole)} ({low} to {high}){cost}, "
        "without evaluations and checkpoints"
    )
    yield f"memory on each GPU: {memory_text(prediction.memory)}, of {size(machines.card.memory_bytes)}"
