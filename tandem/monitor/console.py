"""What a person sees of a run: one live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from tandem.monitor.journal import View
from tandem.monitor.records import Ended, Evaluated, Noticed, Planned, Progressed, Record, Saved, Started

# The parts of a step's time that other processes are the cause of.
OTHERS = ("communication", "waiting")
# Said at the start of a run on GPUs that sums in whatever order its kernels finish.
NOT_DETERMINISTIC = (
    "not deterministic: a killed run continues with the same batches, but not bit for bit (train.deterministic=true)"
)


class ConsoleView(View):
    """Writes the records that matter to a person, each as a line or a few."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._signature = ""

    def show(self, record: Record) -> None:
        match record:
            case Started():
                for line in started_lines(record):
                    self._say(line)
                self._open_progress(record)
            case Planned():
                self._say(f"exchange: {literal(record.reason)}")
            case Progressed():
                self._advance(record)
            case Evaluated():
                for line in evaluation_lines(record):
                    self._say(line)
                # Every BLEU of a session is computed alike: said once, with the first.
                if record.signature != self._signature:
                    self._say(f"    [dim]BLEU is {record.signature}[/dim]")
                    self._signature = record.signature
            case Saved():
                self._say(f"[dim]saved {literal(record.path)} ({record.bytes / 1e6:.1f} MB)[/dim]")
            case Noticed():
                self._say(f"[yellow]note:[/yellow] {literal(record.message)}")
            case Ended():
                self.close()
                self._say(ended_line(record))

    def stepped(self, step: int) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=step)

    def working(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], description=f"{stage} {done}/{total}")

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _say(self, line: str) -> None:
        say(self._console, line)

    def _open_progress(self, record: Started) -> None:
        if self._console.is_terminal:
            # The line must fit a terminal of 80 columns.
            bar, step = BarColumn(bar_width=12), TextColumn("step {task.completed:,.0f}/{task.total:,.0f} ")
            text = TextColumn("{task.description}")
            self._progress = Progress(bar, step, text, console=self._console, transient=True)
            self._progress.add_task("", total=record.max_steps, completed=record.step)
            self._progress.start()

    def _advance(self, record: Progressed) -> None:
        if self._progress is None:
            self._say(progress_line(record))
        else:
            self._progress.update(self._progress.task_ids[0], completed=record.step, description=live_text(record))


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
    device, hosts = literal(device_words(record)), []
    if len(record.hosts) > 1:
        names = literal(", ".join(record.hosts))
        hosts = [f"{len(record.hosts)} hosts: {names}; {record.host} speaks over {record.interface} ({record.address})"]
    return [
        *hosts,
        f"{record.parameters / 1e6:.1f} M parameters, {processes} on {device}, {record.precision}",
        f"{record.training_pairs:,} pairs, {record.steps_per_epoch:.0f} steps an epoch, "
        f"{record.padding_share:.1%} padding (tok/s counts target tokens without padding)",
        *([] if record.deterministic else [NOT_DETERMINISTIC]),
    ]


def device_words(record: Started) -> str:
    """What the processes compute on: the cards, one for each process, by the name of this process's; or `cpu`."""
    if record.card is None:
        return record.device
    return f"{record.world_size} x {record.card}" if record.world_size > 1 else record.card


def hours(seconds: float) -> str:
    """Hours, minutes and seconds; days as hours, because the live line must stay short."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def live_text(record: Progressed) -> str:
    return (
        f"loss {record.train_loss:.3f}  lr {record.learning_rate:.1e}  "
        f"{record.tokens_per_second:,.0f} tok/s  {hours(record.seconds_left)} left"
    )


def progress_line(record: Progressed) -> str:
    pace = f"({record.step_seconds:.2f} s/step, epoch {record.epoch:.1f})"
    return f"step {record.step:,}/{record.max_steps:,}  {live_text(record)}  {pace}{shares_of_others(record)}"


def shares_of_others(record: Progressed) -> str:
    """How much of the time other processes were the cause of; nothing for a process alone."""
    if not record.exchanged_bytes:
        return ""
    whole = sum(record.seconds.values())
    network, waiting = (record.seconds.get(part, 0.0) / whole for part in OTHERS)
    return f"  network {network:.0%}, waiting {waiting:.0%}"


def evaluation_lines(record: Evaluated) -> list[str]:
    lines = [
        f"[bold]step {record.step:,}: {record.split} BLEU {record.bleu:.2f}[/bold]  loss {record.eval_loss:.3f}  "
        f"perplexity {record.perplexity:.2f}  [dim]({record.sentences} sentences, {record.seconds:.1f} s)[/dim]"
    ]
    for sample in record.samples:
        lines.append(f"    [dim]source    [/dim] {literal(sample.source)}")
        lines.append(f"    [dim]reference [/dim] {literal(sample.reference)}")
        lines.append(f"    [dim]hypothesis[/dim] {literal(sample.hypothesis)}")
    return lines


def ended_line(record: Ended) -> str:
    best = "" if record.best_bleu is None else f"; best dev BLEU {record.best_bleu:.2f} at step {record.best_step:,}"
    return f"{literal(record.reason)} at step {record.step:,}{best}"
