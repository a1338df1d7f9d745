"""The picture of a run on a terminal, as large as there is room for."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions
from rich.text import Text

from tandem.monitor.console import device_words, hours
from tandem.monitor.records import Evaluated, HostSummary, Progressed, Saved
from tandem.monitor.watch_draw import (
    Column,
    Paint,
    Pen,
    apportion,
    ends,
    printable,
    progress_bar,
    sparkline,
    stacked_bar,
    table,
)
from tandem.monitor.watch_state import HostState, Note, RunState, Session

# Wider, the eye would lose the line on its way from left to right.
WIDEST = 120
# Lines of a picture that nobody has to fit on a screen.
UNLIMITED_LINES = 60
# With fewer lines than this, what stays the same all the time is left out.
ROOMY_LINES = 30
# The rows that the lists get before one of them gets more, and the most that are of use.
LEAST_HOSTS, LEAST_EVALUATIONS, LEAST_NOTES = 5, 2, 2
MOST_EVALUATIONS, MOST_NOTES = 8, 6
# Below this width the remarks at the right leave no room for the curves.
NARROW = 60
# A link that is this busy, counting the headers of packets, can do hardly more.
BUSY_LINK = 0.8
# A sample this old is as good as the present.
PRESENT_SECONDS = 5.0
MEGA = 1e6
BITS = 8

QUIET = "bright_black"
# Stands where a note is cut short.
MORE = " ..."
PARTS = {
    "data": Paint("blue", "▚", "d"),
    "compute": Paint("green", "█", "c"),
    "communication": Paint("red", "▓", "n"),
    "waiting": Paint("yellow", "░", "w"),
    "optimizer": Paint("cyan", "▒", "o"),
    "evaluation": Paint("magenta", "▞", "e"),
    "checkpoint": Paint("bright_magenta", "▄", "k"),
    "other": Paint("bright_black", "·", "."),
}


@dataclass(frozen=True)
class Picture:
    """All of a run at a moment."""

    name: str
    state: RunState
    now: float
    evaluate_every: int | None = None
    fitted: bool = False
    """Whether it must fit on the screen."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width, height = min(options.max_width, WIDEST), options.size.height if self.fitted else UNLIMITED_LINES
        pen = Pen.of(console)
        for line in self.lines(width, height, pen):
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
            yield pen.shown(line)

    def lines(self, width: int, height: int, pen: Pen) -> list[Text]:
        """The lines of the picture, at most as many as there is room for."""
        head = [ends(Text(printable(self.name), "bold"), self._state_text(), width)]
        session = self.state.session
        if session is None:
            return head[:height]
        if height >= ROOMY_LINES:
            head.append(_facts_line(session))
        head += self._progress_lines(session, width, pen)
        blocks = [head, self._curve_lines(session, width, pen)]
        if session.progressed is not None:
            blocks.append(_time_lines(session, session.progressed, width, pen))
        room = height - sum(len(block) + 1 for block in blocks) + 1
        blocks += self._lists(session, width, room)
        lines: list[Text] = []
        for block in blocks:
            lines += [Text(), *block] if lines else block
        return lines[:height]

    def _state_text(self) -> Text:
        session, silent = self.state.session, self.state.silent_seconds(self.now)
        if session is None and self.state.strange:
            return Text("its journals are of another version of Tandem", "yellow")
        if session is None:
            return Text("waiting for the first record", "yellow")
        if session.ended is not None:
            reason = printable(session.ended.reason)
            style = "bold red" if reason.startswith("failed") else "bold green"
            return Text(f"ended: {reason}", style)
        if silent is not None:
            return Text(f"no sign of life for {duration(silent)}", "bold red")
        if self.state.evaluating(self.evaluate_every):
            return Text("evaluating", "bold magenta")
        if session.newest == Saved.kind and session.saved is not None:
            return Text(f"training, saved step {session.saved.step:,}", "bold green")
        return Text("training" if session.step > session.started.step else "starting", "bold green")

    def _moment(self, session: Session) -> float:
        """The present, or when a run that is over was last alive."""
        if session.ended is not None:
            return session.ended_at
        return self.now if self.state.silent_seconds(self.now) is None else self.state.heard

    def _progress_lines(self, session: Session, width: int, pen: Pen) -> list[Text]:
        progressed, moment = session.progressed, self._moment(session)
        total = session.started.max_steps if progressed is None else progressed.max_steps
        share = session.step / total if total else 1.0
        facts = [
            f"step {session.step:,} of {total:,}",
            f"{share:.1%}",
            f"{hours(max(moment - session.began, 0.0))} so far",
        ]
        if progressed is not None and moment == self.now:
            left = progressed.seconds_left - (moment - session.progressed_at)
            facts.append(f"{hours(max(left, 0.0))} left")
        if progressed is not None:
            facts.append(f"epoch {progressed.epoch:.1f}")
        if self.state.sessions > 1:
            facts.append(f"session {self.state.sessions}")
        while len(facts) > 1 and len("   ".join(facts)) > width:
            facts.pop()
        return [progress_bar(share, width, pen, "green"), Text("   ".join(facts))]

    def _curve_lines(self, session: Session, width: int, pen: Pen) -> list[Text]:
        progressed, evaluations = session.progressed, self.state.evaluations
        rows: list[tuple[str, str, Sequence[float], str]] = []
        if self.state.losses:
            losses = [loss for _, loss in self.state.losses]
            rate = "" if progressed is None else f"learning rate {progressed.learning_rate:.2e}"
            rows.append(("train loss", f"{losses[-1]:.3f}", losses, rate))
        if evaluations:
            last, best_loss, best_bleu = evaluations[-1], least_loss(evaluations), greatest_bleu(evaluations)
            losses, scores = [one.eval_loss for one in evaluations], [one.bleu for one in evaluations]
            remark = f"best {best_loss.eval_loss:.3f} at step {best_loss.step:,}"
            rows.append((f"{last.split} loss", f"{last.eval_loss:.3f}", losses, remark))
            remark = f"best {best_bleu.bleu:.2f} at step {best_bleu.step:,}"
            rows.append((f"{last.split} BLEU", f"{last.bleu:.2f}", scores, remark))
        right = max((len(row[3]) for row in rows), default=0) if width >= NARROW else 0
        lines = [_curve_line(*row, width=width, right=right, pen=pen) for row in rows]
        if progressed is not None:
            pace = f"{progressed.tokens_per_second:>8,.0f}", f"  tokens/s   {progressed.step_seconds:.3g} s/step"
            speed = Text.assemble(f"{'speed':<11}", (pace[0], "bold"), pace[1])
            saved = "" if session.saved is None or width < NARROW else f"saved step {session.saved.step:,}"
            lines.append(ends(speed, Text(saved, QUIET), width))
        return lines or [Text("no step has been logged yet", QUIET)]

    def _lists(self, session: Session, width: int, room: int) -> list[list[Text]]:
        """Hosts, evaluations and notes, with as many rows each as there is room for."""
        state, notes = self.state, _wrapped_notes(self.state.notes, session, width)
        rows = shared_out(
            [
                Want(len(state.hosts), LEAST_HOSTS, beside=2),
                Want(min(len(state.evaluations), MOST_EVALUATIONS), LEAST_EVALUATIONS, beside=2),
                Want(min(sum(map(len, notes)), MOST_NOTES), LEAST_NOTES, beside=1),
            ],
            room,
        )
        blocks = []
        if rows[0]:
            blocks.append(_host_lines(list(state.hosts.values()), rows[0], self._moment(session), width))
        if rows[1]:
            blocks.append(_evaluation_lines(state.evaluations, rows[1], width))
        if rows[2]:
            blocks.append(_note_lines(notes, rows[2]))
        return blocks


@dataclass(frozen=True)
class Want:
    """The rows of a list, how many of them come before those of the next list, and the lines it needs beside them."""

    rows: int
    first: int
    beside: int


def shared_out(wants: Sequence[Want], room: int) -> list[int]:
    """Rows for each list, in order of their weight: the first few of each, then all that one can use."""
    given = []
    for want in wants:
        rows = max(min(want.rows, want.first, room - want.beside), 0)
        room -= rows + want.beside if rows else 0
        given.append(rows)
    for index, want in enumerate(wants):
        more = min(want.rows - given[index], room) if given[index] else 0
        given[index] += more
        room -= more
    return given


def least_loss(evaluations: Sequence[Evaluated]) -> Evaluated:
    return min(evaluations, key=lambda one: one.eval_loss if math.isfinite(one.eval_loss) else math.inf)


def greatest_bleu(evaluations: Sequence[Evaluated]) -> Evaluated:
    return max(evaluations, key=lambda one: one.bleu)


def duration(seconds: float) -> str:
    """A while, short: up to two minutes in seconds, of which few ones are worth a decimal."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else hours(seconds)


def _facts_line(session: Session) -> Text:
    started = session.started
    processes = f"{started.world_size} process{'es' if started.world_size > 1 else ''}"
    hosts = f"{len(started.hosts)} host{'s' if len(started.hosts) > 1 else ''}"
    size = f"{started.parameters / MEGA:.1f} M parameters"
    return Text(printable(f"{size}, {started.precision}, {processes} on {hosts}, {device_words(started)}"), QUIET)


def _curve_line(
    label: str, value: str, values: Sequence[float], remark: str, *, width: int, right: int, pen: Pen
) -> Text:
    start = Text.assemble(f"{printable(label):<11}", (f"{value:>8}", "bold"), "  ")
    curve = sparkline(values, width - start.cell_len - (right + 2 if right else 0), pen)
    start.append(curve, "cyan")
    return ends(start, Text(remark, QUIET), width) if right and remark else start


def _time_lines(session: Session, progressed: Progressed, width: int, pen: Pen) -> list[Text]:
    """The parts of the last stretch: a bar, and what is what."""
    seconds = {part: max(progressed.seconds.get(part, 0.0), 0.0) for part in PARTS}
    whole = sum(seconds.values())
    percents = dict(zip(PARTS, apportion(list(seconds.values()), 100), strict=True))
    steps = f"the last {progressed.steps:,} steps" if progressed.steps > 1 else "the last step"
    whose = f" in process {session.teller}" if session.started.world_size > 1 else ""
    title = Text(f"where the time of {steps} went{whose} ({whole:.3g} s)", QUIET)
    bar = stacked_bar([(PARTS[part], share) for part, share in seconds.items()], width, pen)
    return [title, bar, *_legend(percents, width, pen)]


def _legend(percents: dict[str, int], width: int, pen: Pen) -> list[Text]:
    """All parts in as few lines as they fit in; always all of them, so that nothing jumps."""
    names = list(percents)
    for columns in (4, 2, 1):
        widths = [max(len(name) for name in names[column::columns]) for column in range(columns)]
        if sum(widths) + 7 * columns + 2 * (columns - 1) <= width:
            break
    lines = []
    for start in range(0, len(names), columns):
        line = Text()
        for name, longest in zip(names[start : start + columns], widths, strict=True):
            line.append("  " if line else "")
            line.append_text(pen.fill(PARTS[name]))
            line.append(f" {name:<{longest}}{percents[name]:>4}%", "" if percents[name] else QUIET)
        lines.append(line)
    return lines


def _host_lines(hosts: Sequence[HostState], rows: int, moment: float, width: int) -> list[Text]:
    shown = hosts if len(hosts) <= rows else hosts[: rows - 1]
    uses = [host.summary for host in shown]
    columns = [
        Column("host", [printable(use.host) for use in uses], style="bold"),
        Column("CPU", [f"{use.cpu:.0%}" for use in uses]),
        Column("mem", [f"{use.memory:.0%}" for use in uses], spare=5),
        Column("out Mbit/s", [_rate(use.sent_mbit_per_second) for use in uses]),
        Column("MB/s", [_rate(use.sent_mbit_per_second / BITS) for use in uses], spare=4),
        Column("in Mbit/s", [_rate(use.received_mbit_per_second) for use in uses], spare=2),
        Column("MB/s", [_rate(use.received_mbit_per_second / BITS) for use in uses], spare=4),
    ]
    if any(use.link_mbit_per_second for use in uses):
        busy = ["bold red" if link_share(use) >= BUSY_LINK else "" for use in uses]
        columns.append(Column("link", [_link(use) for use in uses], spare=1, styles=busy))
    if any(use.gpu_count for use in uses):
        columns += [
            Column("GPUs", [_gpus(use) for use in uses], spare=1),
            *_spread_columns(uses),
            Column("VRAM", [_share(use.gpu_memory) for use in uses], spare=3),
            Column("power", [_share(use.gpu_power) for use in uses], spare=1),
        ]
    columns.append(Column("as of", [_as_of(host, moment) for host in shown], spare=7))
    lines = table(columns, width)
    if len(shown) < len(hosts):
        lines.append(Text(f"and {len(hosts) - len(shown)} more hosts", QUIET))
    return lines


def link_share(use: HostSummary) -> float:
    """How much of its link a host used, in the busier direction; nothing where its speed is not known."""
    busier = max(use.sent_mbit_per_second, use.received_mbit_per_second)
    return busier / use.link_mbit_per_second if use.link_mbit_per_second else 0.0


def _link(use: HostSummary) -> str:
    return f"{link_share(use):.0%}" if use.link_mbit_per_second else "?"


def _gpus(use: HostSummary) -> str:
    """How busy they were; how many they are, where there are several."""
    return f"{use.gpu_count} x {_share(use.gpu_utilisation)}" if use.gpu_count > 1 else _share(use.gpu_utilisation)


def _spread_columns(uses: Sequence[HostSummary]) -> list[Column]:
    """From the least to the most busy card of each host, where they differ; the first to go where room is short."""
    spreads = [_spread(use) for use in uses]
    return [Column("min-max", spreads, spare=8)] if any(spreads) else []


def _spread(use: HostSummary) -> str:
    least, most = _share(use.gpu_utilisation_least), _share(use.gpu_utilisation_most)
    return f"{least}-{most}" if use.gpu_count > 1 and least != most else ""


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _as_of(host: HostState, moment: float) -> str:
    age = moment - host.time
    return "now" if age < PRESENT_SECONDS else f"{duration(age)} ago"


def _evaluation_lines(evaluations: Sequence[Evaluated], rows: int, width: int) -> list[Text]:
    shown, best = evaluations[-rows:], greatest_bleu(evaluations)
    return table(
        [
            Column("evaluated at step", [f"{one.step:,}" for one in shown]),
            Column("loss", [f"{one.eval_loss:.3f}" for one in shown]),
            Column("perplexity", [f"{one.perplexity:,.2f}" for one in shown], spare=2),
            Column("BLEU", [f"{one.bleu:.2f}" for one in shown], style="bold"),
            Column("", ["best" if one is best else "" for one in shown], spare=1, style="green"),
            Column("took", [duration(one.seconds) for one in shown], spare=3),
        ],
        width,
    )


def _wrapped_notes(notes: Sequence[Note], session: Session, width: int) -> list[list[Text]]:
    """The lines of all there is to read, the newest last, and at the very end why a run has failed."""
    told = list(notes)
    if session.ended is not None and session.ended.reason.startswith("failed"):
        told.append(Note(session.ended_at, session.ended.step, session.ended.reason))
    wrapped = []
    for note in told:
        clock = f"{datetime.fromtimestamp(note.time):%H:%M}  "
        room = width - len(clock) - len(MORE)
        parts = textwrap.wrap(f"step {note.step:,}: {printable(note.text)}", max(room, 1))
        margins = [clock, *[" " * len(clock)] * (len(parts) - 1)]
        wrapped.append([Text.assemble((margin, QUIET), part) for margin, part in zip(margins, parts, strict=True)])
    return wrapped


def _note_lines(notes: Sequence[Sequence[Text]], rows: int) -> list[Text]:
    """The newest notes in so many rows; the oldest of them may lack its end."""
    lines: list[Text] = []
    for note in reversed(notes):
        kept = list(note[: rows - len(lines)])
        if kept and len(kept) < len(note):
            kept[-1].append(MORE, QUIET)
        lines = kept + lines
    return lines
