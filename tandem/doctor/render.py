"""A diagnosis for people: what is there, what a run would take, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from tandem.doctor.figures import HOUR, memory, rate, time
from tandem.report.figures import size

if TYPE_CHECKING:
    from tandem.doctor.diagnosis import Diagnosis
    from tandem.doctor.machine import Machine
    from tandem.doctor.predict import Prediction

# Of a step: smaller parts of it are not worth a word.
LEAST_SHARE = 0.01


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print it."""
    console.print(Group(*_blocks(diagnosis)), highlight=False)


def _blocks(diagnosis: Diagnosis) -> Iterator[ConsoleRenderable]:
    yield Text("\n".join(_machine_lines(diagnosis)))
    yield Text("\n".join(_measured_lines(diagnosis)))
    yield prediction_table(
        diagnosis.predictions, diagnosis.max_steps, diagnosis.price_per_hour, len(diagnosis.machines)
    )
    yield _link_table(diagnosis)
    for note in diagnosis.notes:
        yield Text(note)
    yield Text(diagnosis.advice, style="bold")
    for reason in diagnosis.reasons_against:
        yield Text(f"Do not start yet: {reason}.", style="bold red")


def _machine_lines(diagnosis: Diagnosis) -> Iterator[str]:
    versions = list(dict.fromkeys(machine.versions for machine in diagnosis.machines))
    yield "; ".join(versions)
    for machine in diagnosis.machines:
        yield f"{machine.host}: {', '.join(_facts(machine))}"


def _facts(machine: Machine) -> Iterator[str]:
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    yield f"{machine.processes} process{'es' if machine.processes > 1 else ''} of {threads}"
    yield f"{machine.processor} ({machine.cores} cores), {size(machine.memory_bytes)} memory"
    for gpu in machine.gpus:
        yield f"{gpu.name} ({size(gpu.memory_bytes)})"
    if machine.driver:
        yield f"driver {machine.driver}"
    yield f"{size(machine.disk_free_bytes)} free in {machine.disk}"
    if machine.interface:
        yield machine.interface + (f" ({rate(machine.interface_mbit)})" if machine.interface_mbit else "")


def _measured_lines(diagnosis: Diagnosis) -> Iterator[str]:
    needs, computing, network, reading = (
        diagnosis.needs,
        diagnosis.computing,
        diagnosis.network,
        diagnosis.reading,
    )
    yield (
        f"model: {needs.parameters:,} parameters, checkpoints of {size(needs.checkpoint_bytes)}, "
        f"{size(needs.disk_bytes)} on the disk"
    )
    if needs.gpu_memory is not None:
        yield f"memory on each GPU: {memory(needs.gpu_memory)}"
    shown = {part: spent for part, spent in computing.parts.items() if spent > LEAST_SHARE * computing.apart_seconds}
    parts = ", ".join(f"{part} {time(spent)}" for part, spent in shown.items())
    yield (
        f"compute: {computing.gflops:,.0f} GFLOP/s in matrices; a step without exchange takes "
        f"{time(computing.together_seconds)}" + (f" ({parts})" if parts else "")
    )
    if reading:
        yield f"corpus: {reading.mb_per_second:,.0f} MB/s from disk, {reading.batches_per_second:,.0f} batches/s"
    if network:
        where = "between hosts" if len(diagnosis.machines) > 1 else "between processes"
        yield f"network: {rate(network.mbit_per_second)} {where}, {time(network.latency_seconds)} for a message"


def prediction_table(predictions: Sequence[Prediction], max_steps: int, price: float | None, hosts: int) -> Table:
    """Every way of exchanging, and what a run with it would take."""
    columns = ["exchange", "a step", "slow-down", f"{max_steps:,} steps"]
    if price is not None:
        columns.append(f"cost at ${price:g} a machine-hour x {hosts}")
    table = Table(*columns, title="predicted, without evaluations and checkpoints", title_justify="left")
    for prediction in _worth_a_line(predictions):
        name = prediction.exchange if hosts > 1 else "inside one host"
        cells = [
            name + (" <- these settings" if prediction.chosen and hosts > 1 else ""),
            time(prediction.step_seconds),
            f"{prediction.slow_down:.2f}",
            time(prediction.hours * HOUR),
        ]
        if prediction.cost is not None:
            cells.append(f"${prediction.cost:,.2f}")
        table.add_row(*cells, style="bold" if prediction.chosen else None)
    return table


def _worth_a_line(predictions: Sequence[Prediction]) -> Iterator[Prediction]:
    """All but the lengths of rounds that nobody has asked for."""
    shortest = min((each.local_steps for each in predictions if each.kind == "diloco"), default=None)
    for prediction in predictions:
        if prediction.chosen or prediction.auto or prediction.kind != "diloco" or prediction.local_steps == shortest:
            yield prediction


def _link_table(diagnosis: Diagnosis) -> Table:
    alone = len(diagnosis.machines) == 1
    title = "with a second host like this one, at best" if alone else "over other links"
    hours = f"auto: {diagnosis.max_steps:,} steps"
    table = Table("link", "all-reduce: a step", "auto takes", "auto: a step", hours, title=title, title_justify="left")
    for link in diagnosis.other_links:
        table.add_row(
            rate(link.mbit),
            time(link.allreduce_step_seconds),
            link.auto,
            time(link.auto_step_seconds),
            time(link.auto_hours * HOUR),
        )
    return table
