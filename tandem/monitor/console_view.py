"""The console's view of a run: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from tandem.metrics import BY_DEV_BLEU, Criterion, metric_label
from tandem.monitor.console_stream import never_blocking
from tandem.monitor.records import (
    Ended,
    Evaluated,
    Noticed,
    Planned,
    Progressed,
    Record,
    Returned,
    RolledBack,
    Saved,
    Silent,
    Started,
)
from tandem.monitor.views import View
from tandem.units import clock_time, first_sentences_note

# Printed at the start of a run on GPUs that sums in whatever order its kernels finish.
NOT_DETERMINISTIC = (
    "not deterministic: a killed run continues with the same batches, but not bit for bit (train.deterministic=true)"
)


class ConsoleView(View):
    """Prints the records that matter to a person, each as a line or a few; a terminal that nobody reads loses some."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._file, self._stream = console.file, never_blocking(console)
        self._progress: Progress | None = None
        self._signatures: set[str] = set()

    def show(self, record: Record) -> None:
        match record:
            case Started():
                self._print(*started_lines(record))
                if self._console.is_terminal:
                    self._start_live_line(record)
            case Planned():
                self._print(f"exchange: {literal(record.reason)}")
            case Progressed() if self._progress is None:
                self._print(progress_line(record))
            case Progressed():
                self._update_live_line(completed=record.step, description=live_text(record))
            case Evaluated():
                self._print(*evaluation_lines(record))
                # A metric is computed alike all session long: its signature is printed once, with the first value.
                new = [line for line in signature_lines(record) if line not in self._signatures]
                self._print(*(f"    [dim]{literal(line)}[/dim]" for line in new))
                self._signatures.update(new)
            case Saved():
                self._print(f"[dim]saved {literal(record.path)} ({record.bytes / 1e6:.1f} MB)[/dim]")
            case RolledBack():
                self._print(f"[bold yellow]rolled back:[/bold yellow] {literal(f'{record.reason}; {record.remedy}')}")
            case Noticed():
                self._print(f"[yellow]note:[/yellow] {literal(record.message)}")
            case Silent() | Returned():
                self._print(f"[bold yellow]{literal(record.message)}[/bold yellow]")
            case Ended():
                self._stop_live_line()
                # A process that ends at once has a last sentence of its own.
                self._print(*([] if record.at_once else [ended_line(record)]))

    def stepped(self, step: int) -> None:
        self._update_live_line(completed=step)

    def working(self, stage: str, done: int, total: int) -> None:
        self._update_live_line(description=f"{stage} {done}/{total}")

    def close(self) -> None:
        self._stop_live_line()
        if self._stream is not None:
            self._stream.finish()
            self._console.file, self._stream = self._file, None

    def _stop_live_line(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _print(self, *lines: str) -> None:
        for line in lines:
            say(self._console, line)

    def _start_live_line(self, record: Started) -> None:
        # The line must fit a terminal of 80 columns.
        bar, step = BarColumn(bar_width=12), TextColumn("step {task.completed:,.0f}/{task.total:,.0f} ")
        text = TextColumn("{task.description}")
        self._progress = Progress(bar, step, text, console=self._console, transient=True)
        self._progress.add_task("", total=record.max_steps, completed=record.step)
        self._progress.start()

    def _update_live_line(self, completed: float | None = None, description: str | None = None) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=completed, description=description)


def say(console: Console, line: str) -> None:
    """Print a line with its markup, and nothing that only looks like markup interpreted."""
    console.print(line, highlight=False, soft_wrap=True, emoji=False)


def literal(text: str) -> str:
    """Markup that shows a text as it is; what follows it on the line must not be a tag."""
    # Without the space `escape` doubles a backslash at the end, in case a tag follows.
    return escape(f"{text} ")[:-1]


def started_lines(record: Started) -> list[str]:
    processes = f"{record.world_size} process{'es' if record.world_size > 1 else ''}"
    # On a GPU the threads of the processor matter little.
    if record.card is None:
        processes += f" x {record.threads} thread{'s' if record.threads > 1 else ''}"
    lines = [
        f"{record.model_size}, {processes} on {literal(record.device_name)}, {record.precision}",
        f"{record.training_pairs:,} pairs, {record.steps_per_epoch:.0f} steps an epoch, "
        f"{record.padding_share:.1%} padding (tok/s counts target tokens without padding)",
    ]
    if len(record.hosts) > 1:
        hosts = f"{len(record.hosts)} hosts: {literal(', '.join(record.hosts))}"
        lines.insert(0, f"{hosts}; {record.host} speaks over {record.interface} ({record.address})")
    if record.deterministic is False:
        lines.append(NOT_DETERMINISTIC)
    return lines


def live_text(record: Progressed) -> str:
    return (
        f"loss {record.train_loss:.3f}  lr {record.learning_rate:.1e}  "
        f"{record.tokens_per_second:,.0f} tok/s  {clock_time(record.seconds_left)} left"
    )


def progress_line(record: Progressed) -> str:
    line = (
        f"step {record.step:,}/{record.max_steps:,}  {live_text(record)}  "
        f"({record.step_seconds:.2f} s/step, epoch {record.epoch:.1f})"
    )
    if not record.exchanged_bytes:
        return line
    # How much of the time other processes were the cause of.
    whole = sum(record.seconds.values())
    network, waiting = (record.seconds.get(part, 0.0) / whole for part in ("communication", "waiting"))
    return f"{line}  network {network:.0%}, waiting {waiting:.0%}"


def evaluation_lines(record: Evaluated) -> list[str]:
    counted = f"{record.sentences} sentences"
    if record.first_sentences is not None:
        counted = f"the first {counted} of {record.all_sentences:,}: it cannot translate yet"
    lines = [
        f"[bold]step {record.step:,}: {record.split} BLEU {record.bleu:.2f}[/bold]  loss {record.eval_loss:.3f}  "
        f"perplexity {record.perplexity:.2f}  [dim]({counted}, {record.seconds:.1f} s)[/dim]"
    ]
    if record.metrics:
        values = "  ".join(f"{metric_label(found.metric)} {found.value:.2f}" for found in record.metrics)
        lines.append(f"    {record.split} {literal(values)}")
    for sample in record.samples:
        lines.append(f"    [dim]source    [/dim] {literal(sample.source)}")
        lines.append(f"    [dim]reference [/dim] {literal(sample.reference)}")
        lines.append(f"    [dim]hypothesis[/dim] {literal(sample.hypothesis)}")
    return lines


def signature_lines(record: Evaluated) -> list[str]:
    """How each metric of an evaluation was computed."""
    more = [f"{metric_label(found.metric)} is {found.signature}" for found in record.metrics]
    return [f"BLEU is {record.signature}", *more]


def ended_line(record: Ended) -> str:
    best = ""
    if record.best_bleu is not None:
        note = first_sentences_note(record.best_first_sentences)
        best = f"; best dev BLEU {record.best_bleu:.2f}{note} at step {record.best_step:,}"
        if record.best_by != str(BY_DEV_BLEU):
            label = literal(Criterion.parse(record.best_by).label)
            best = f"; best {label} {record.best_value:.4g} at step {record.best_step:,}"
            best += f", dev BLEU {record.best_bleu:.2f}{note}"
        if record.start_bleu is not None:
            best += f", {record.best_bleu - record.start_bleu:+.2f} over the model it began with"
    if record.failed:
        # Why is told by the error itself, once.
        return f"failed after step {record.step:,}{best}"
    asked, remedy = (f" ({record.signal})", "; the same command continues the run") if record.signal else ("", "")
    return f"{literal(record.reason)}{asked} at step {record.step:,}{best}{remedy}"
