"""A prediction for cards that nobody has rented yet, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleRenderable, Group
from rich.text import Text

from tandem.doctor.card_prediction import CardPrediction
from tandem.doctor.card_work import TARGET_FILL
from tandem.doctor.figures import HOUR, memory, rate, time
from tandem.doctor.render import prediction_table
from tandem.report.figures import size


def show_prediction(prediction: CardPrediction, console: Console) -> None:
    """Print it."""
    console.print(Group(*_blocks(prediction)), highlight=False)


def _blocks(prediction: CardPrediction) -> Iterator[ConsoleRenderable]:
    yield Text("\n".join(_lines(prediction)))
    machines, exchange = prediction.machines, prediction.exchange
    if exchange is not None and machines.hosts > 1:
        yield prediction_table(exchange.predictions, prediction.max_steps, machines.price_per_hour, machines.hosts)
    for note in prediction.notes:
        yield Text(note)
    yield Text(prediction.advice, style="bold")
    for reason in prediction.reasons_against:
        yield Text(f"Do not start yet: {reason}.", style="bold red")


def _lines(prediction: CardPrediction) -> Iterator[str]:
    machines, batching = prediction.machines, prediction.batching
    hosts = f"{machines.hosts} hosts over {rate(machines.link_mbit)} with " if machines.hosts > 1 else ""
    yield f"Predicted from data sheets, nothing was measured: {hosts}{machines.cards} x {machines.card.name}"
    yield (
        f"a step: {batching.micro_batches} micro-batches of {batching.tokens:,} tokens a side, {1 - TARGET_FILL:.0%} "
        f"padding, in {prediction.precision}; vocabulary of {prediction.vocab_size:,}"
    )
    low, high = (time(bound) for bound in prediction.step_seconds_range)
    yield (
        f"a step takes {time(prediction.step_seconds)} (probably {low} to {high}): "
        f"{prediction.tokens_per_second:,.0f} target tokens/s"
    )
    shown = ", ".join(f"{name} {time(spent)}" for name, spent in prediction.parts.items() if spent > 0)
    yield f"of which {shown}"
    whole = prediction.hours * HOUR
    low, high = (time(whole * bound / prediction.step_seconds) for bound in prediction.step_seconds_range)
    cost = "" if prediction.cost is None else f", ${prediction.cost:,.2f}"
    yield (
        f"{prediction.max_steps:,} steps take {time(whole)} ({low} to {high}){cost}, "
        "without evaluations and checkpoints"
    )
    yield f"memory on each GPU: {memory(prediction.memory)}, of {size(machines.card.memory_bytes)}"
