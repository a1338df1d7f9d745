"""The screen of `tandem watch`: a run's state as lines of text, as many as there is room for."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rich.console import Console, ConsoleOptions
from rich.text import Text

from tandem.metrics import BLEU, BY_DEV_BLEU, DEV, LOSS, Criterion
from tandem.monitor.records import Ended, Evaluated, Noticed, Progressed, RolledBack, Saved
from tandem.monitor.watch.drawing import (
    QUIET,
    CharacterSet,
    Fill,
    apportion,
    justified,
    printable,
    progress_bar,
    sparkline,
    stacked_bar,
    table,
)
from tandem.monitor.watch.run_state import HostState, RunState, SessionState
from tandem.thresholds import DISTURBED_SHARE
from tandem.units import clock_time, elapsed, first_sentences_note

# Wider, the eye would lose the line on its way from left to right.
WIDEST = 120
# Lines of a screen that nothing has to fit on.
UNLIMITED_LINES = 60
# With fewer lines than this, what stays the same all the time is left out.
ROOMY_LINES = 30
# The rows that the lists get before one of them gets more, and the most that are of use.
LEAST_HOSTS, LEAST_EVALUATIONS, LEAST_MESSAGES = 5, 2, 2
MOST_EVALUATIONS, MOST_MESSAGES = 8, 6
# Below this width the remarks at the right leave no room for the curves.
NARROW = 60
# A link that is this busy, counting the headers of packets, can do hardly more.
BUSY_LINK = 0.8
# A sample this old is as good as the present: the next one may be five seconds away.
PRESENT_SECONDS = 10.0
BITS = 8

PARTS = {
    "data": Fill("blue", "▚", "d"),
    "compute": Fill("green", "█", "c"),
    "communication": Fill("red", "▓", "n"),
    "waiting": Fill("yellow", "░", "w"),
    "optimizer": Fill("cyan", "▒", "o"),
    "evaluation": Fill("magenta", "▞", "e"),
    "checkpoint": Fill("bright_magenta", "▄", "k"),
    "other": Fill("bright_black", "·", "."),
}
# Titles, and which are left out first where room is short; a column in which no host has a value is left out, too.
HOST_COLUMNS = (
    *(("host", 0), ("CPU", 0), ("own", 6), ("others", 1), ("stolen", 3), ("mem", 5)),
    *(("out Mbit/s", 0), ("MB/s", 4), ("in Mbit/s", 2), ("MB/s", 4)),
    *(("link", 1), ("GPUs", 1), ("min-max", 8), ("VRAM", 3), ("power", 1), ("as of", 7)),
)
NO_VALUES = {"", "-", "?"}
# Columns of a curve's label; names of dev sets may be longer than ours, and are cut off there.
LABEL_WIDTH, MOST_LABEL_WIDTH = 11, 24
EVALUATION_COLUMNS = (("evaluated at step", 0), ("loss", 0), ("perplexity", 2), ("BLEU", 0), ("", 1), ("took", 3))


@dataclass(frozen=True)
class RunScreen:
    """A run at a moment, to be printed by rich."""

    name: str
    state: RunState
    now: float
    evaluate_every: int | None = None
    fitted: bool = False
    """Whether it must fit on the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width, height = min(options.max_width, WIDEST), options.size.height if self.fitted else UNLIMITED_LINES
        characters = CharacterSet.of(console)
        for line in self._lines(width, height, characters):
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
            yield characters.shown(line)

    def _lines(self, width: int, height: int, characters: CharacterSet) -> list[Text]:
        """At most as many lines as there is room for."""
        head = [justified(Text(printable(self.name), "bold"), self._status(), width)]
        session = self.state.session
        if session is None:
            return head[:height]
        if height >= ROOMY_LINES:
            head.append(_facts_line(session))
        head += self._progress_lines(session, width, characters)
        blocks = [head, self._curve_lines(session, width, characters)]
        if session.progressed is not None:
            blocks.append(_time_lines(session, session.progressed, width, characters))
        room = height - sum(len(block) + 1 for block in blocks) + 1
        blocks += self._lists(session, width, room)
        return [line for block in blocks for line in (Text(), *block)][1 : height + 1]

    def _status(self) -> Text:
        session, silent = self.state.session, self.state.silent_seconds(self.now)
        if session is None and self.state.unreadable:
            return Text("its journals are of another version of Tandem", "yellow")
        if session is None:
            return Text("waiting for the first record", "yellow")
        if session.ended is not None:
            style = "bold red" if session.ended.failed else "bold green"
            return Text(f"ended: {printable(session.ended.reason)}", style)
        if silent is not None:
            return Text(f"no sign of life for {elapsed(silent)}", "bold red")
        if silences := self.state.silences(self.now):
            first, more = silences[0], f", and {len(silences) - 1} more" if len(silences) > 1 else ""
            phase = f", in {printable(first.phase)}" if first.phase else ""
            return Text(f"{printable(first.who)} silent for {elapsed(first.seconds)}{phase}{more}", "bold red")
        if self.state.evaluating(self.evaluate_every):
            return Text("evaluating", "bold magenta")
        if (stalled := self.state.stalled_seconds()) is not None:
            return Text(f"no step for {elapsed(stalled)}", "bold red")
        if session.newest_kind == Saved.kind and session.saved is not None:
            return Text(f"training, saved step {session.saved.step:,}", "bold green")
        if session.newest_kind == RolledBack.kind:
            return Text(f"training again from step {session.step:,}, after it blew up", "bold yellow")
        return Text("training" if session.step > session.started.step else "starting", "bold green")

    def _moment(self, session: SessionState) -> float:
        """The present, or when a run that is over was last alive."""
        if session.ended is not None:
            return session.ended.timestamp
        return self.now if self.state.silent_seconds(self.now) is None else self.state.last_record_time

    def _progress_lines(self, session: SessionState, width: int, characters: CharacterSet) -> list[Text]:
        progressed, moment = session.progressed, self._moment(session)
        total = session.started.max_steps if progressed is None else progressed.max_steps
        share = session.step / total if total else 1.0
        # The steps are those of all sessions, the time is this one's.
        since = f"in session {self.state.sessions}" if self.state.sessions > 1 else "so far"
        lasted = clock_time(max(moment - session.began, 0.0))
        facts = [f"step {session.step:,} of {total:,}", f"{share:.1%}", f"{lasted} {since}"]
        stands = self.state.silences(self.now) or self.state.stalled_seconds() is not None
        if progressed is not None and moment == self.now and not stands:
            left = progressed.seconds_left - (moment - progressed.timestamp)
            facts.append(f"{clock_time(max(left, 0.0))} left")
        if progressed is not None:
            facts.append(f"epoch {progressed.epoch:.1f}")
        while len(facts) > 1 and len("   ".join(facts)) > width:
            facts.pop()
        return [progress_bar(share, width, characters), Text("   ".join(facts))]

    def _curve_lines(self, session: SessionState, width: int, characters: CharacterSet) -> list[Text]:
        """Label, newest value, sparkline and remark of each curve, and the speed."""
        progressed = session.progressed
        curves: list[tuple[str, str, Sequence[float], str]] = []
        if self.state.losses:
            losses = [loss for _, loss in self.state.losses]
            rate = "" if progressed is None else f"learning rate {progressed.learning_rate:.2e}"
            curves.append(("train loss", f"{losses[-1]:.3f}", losses, rate))
        for measure in _measures(session, self.state):
            evaluations = _evaluations_with(measure, self.state)
            scores, best = [one.values[measure.metric] for one in evaluations], _best(measure, evaluations)
            of_loss = measure.metric == LOSS
            digits, note = (3, "") if of_loss else (2, first_sentences_note(best.first_sentences))
            remark = f"best {best.values[measure.metric]:.{digits}f}{note} at step {best.step:,}"
            remark += _gain(session, evaluations, best) if measure == BY_DEV_BLEU else ""
            curves.append((measure.label, f"{scores[-1]:.{digits}f}", scores, remark))
        right = max((len(remark) + 2 for *_, remark in curves), default=0) if width >= NARROW else 0
        lines = []
        label_width = max((len(label) + 1 for label, *_ in curves), default=0)
        label_width = min(max(label_width, LABEL_WIDTH), MOST_LABEL_WIDTH)
        for label, value, values, remark in curves:
            shown = f"{printable(label)[: label_width - 1]:<{label_width}}"
            line = Text.assemble(shown, (f"{value:>8}", "bold"), "  ")
            line.append(sparkline(values, width - line.cell_len - right, characters), "cyan")
            lines.append(justified(line, Text(remark, QUIET), width) if right and remark else line)
        if progressed is not None:
            rate, pace = f"{progressed.tokens_per_second:>8,.0f}", f"{progressed.step_seconds:.3g} s/step"
            speed = Text.assemble(f"{'speed':<{label_width}}", (rate, "bold"), f"  tokens/s   {pace}")
            saved = "" if session.saved is None or width < NARROW else f"saved step {session.saved.step:,}"
            lines.append(justified(speed, Text(saved, QUIET), width))
        return lines or [Text("no step has been logged yet", QUIET)]

    def _lists(self, session: SessionState, width: int, room: int) -> list[list[Text]]:
        """Hosts, evaluations and messages, with as many rows each as there is room for."""
        hosts, evaluations = list(self.state.hosts.values()), self.state.evaluations
        messages: list[Noticed | Ended] = [*self.state.messages]
        if session.ended is not None and session.ended.failed:
            messages.append(session.ended)
        host_rows, evaluation_rows, message_rows = allot_rows(
            [
                RowDemand(len(hosts), LEAST_HOSTS, around=2),
                RowDemand(min(len(evaluations), MOST_EVALUATIONS), LEAST_EVALUATIONS, around=2),
                RowDemand(len(_message_lines(messages, MOST_MESSAGES, width)), LEAST_MESSAGES, around=1),
            ],
            room,
        )
        blocks = [
            _host_lines(hosts, host_rows, self.now, width) if host_rows else [],
            _evaluation_lines(evaluations, _best_step(session, self.state), evaluation_rows, width)
            if evaluation_rows
            else [],
            _message_lines(messages, message_rows, width),
        ]
        return [block for block in blocks if block]


class RowDemand(NamedTuple):
    """The rows that a list can use, how many of them come before those of the next list, and the lines around them."""

    rows: int
    first: int
    around: int


def allot_rows(demands: Sequence[RowDemand], room: int) -> list[int]:
    """Rows for each list, in order of their weight: the first few of each, then all that one can use."""
    given = []
    for rows, first, around in demands:
        given.append(max(min(rows, first, room - around), 0))
        room -= given[-1] + around if given[-1] else 0
    for index, demand in enumerate(demands):
        more = min(demand.rows - given[index], room) if given[index] else 0
        given[index] += more
        room -= more
    return given


def _measures(session: SessionState, state: RunState) -> list[Criterion]:
    """What is drawn of the evaluations: loss and BLEU on dev, BLEU on further dev sets, and what makes the best."""
    usual = [Criterion(DEV, LOSS), *(Criterion(dev_set, BLEU) for dev_set in state.evaluated)]
    measures = dict.fromkeys([*usual, Criterion.parse(session.started.best_by)])
    return [measure for measure in measures if _evaluations_with(measure, state)]


def _evaluations_with(measure: Criterion, state: RunState) -> list[Evaluated]:
    """The evaluations on a dev set in which a metric was taken."""
    return [one for one in state.evaluated.get(measure.dev_set, ()) if measure.metric in one.values]


def _best(measure: Criterion, evaluations: Sequence[Evaluated]) -> Evaluated:
    """The first of the best."""
    return max(evaluations, key=lambda one: measure.rank(one.values[measure.metric], whole=one.first_sentences is None))


def _best_step(session: SessionState, state: RunState) -> int | None:
    """The step whose checkpoint is the best so far."""
    measure = Criterion.parse(session.started.best_by)
    evaluations = _evaluations_with(measure, state)
    return _best(measure, evaluations).step if evaluations else None


def _gain(session: SessionState, evaluations: Sequence[Evaluated], best: Evaluated) -> str:
    """How much better the best is than the model of another run that the run began with, if it began with one."""
    started, first = session.started, evaluations[0]
    if started.origin is None or first.step != started.first_step:
        return ""
    return f", {best.bleu - first.bleu:+.2f} since the start"


def _facts_line(session: SessionState) -> Text:
    started = session.started
    processes = f"{started.world_size} process{'es' if started.world_size > 1 else ''}"
    hosts = f"{len(started.hosts)} host{'s' if len(started.hosts) > 1 else ''}"
    return Text(
        printable(f"{started.model_size}, {started.precision}, {processes} on {hosts}, {started.device_name}"), QUIET
    )


def _time_lines(session: SessionState, progressed: Progressed, width: int, characters: CharacterSet) -> list[Text]:
    """Where the time of the last stretch of steps went: a bar, and its legend."""
    seconds = {part: max(progressed.seconds.get(part, 0.0), 0.0) for part in PARTS}
    percents = dict(zip(PARTS, apportion(list(seconds.values()), 100), strict=True))
    steps = f"the last {progressed.steps:,} steps" if progressed.steps > 1 else "the last step"
    whose = f" in process {session.reporting_rank}" if session.started.world_size > 1 else ""
    title = Text(f"where the time of {steps} went{whose} ({sum(seconds.values()):.3g} s)", QUIET)
    bar = stacked_bar([(PARTS[part], share) for part, share in seconds.items()], width, characters)
    return [title, bar, *_legend(percents, width, characters)]


def _legend(percents: dict[str, int], width: int, characters: CharacterSet) -> list[Text]:
    """All parts in as few lines as they fit in; always all of them, so that nothing jumps."""
    names = list(percents)
    for columns in (4, 2, 1):
        widths = [max(len(name) for name in names[column::columns]) for column in range(columns)]
        if sum(widths) + 7 * columns + 2 * (columns - 1) <= width:
            break
    entries = [
        characters.block(PARTS[name]).append(
            f" {name:<{widths[number % columns]}}{percents[name]:>4}%", "" if percents[name] else QUIET
        )
        for number, name in enumerate(names)
    ]
    return [Text("  ").join(entries[start : start + columns]) for start in range(0, len(names), columns)]


def _host_lines(hosts: Sequence[HostState], rows: int, now: float, width: int) -> list[Text]:
    shown = hosts if len(hosts) <= rows else hosts[: rows - 1]
    cells = [_host_cells(host, now) for host in shown]
    kept = [index for index in range(len(HOST_COLUMNS)) if {row[index].plain for row in cells} - NO_VALUES]
    lines = table([HOST_COLUMNS[index] for index in kept], [[row[index] for index in kept] for row in cells], width)
    more = [Text(f"and {len(hosts) - len(shown)} more hosts", QUIET)] if len(shown) < len(hosts) else []
    return [*lines, *more]


def _host_cells(host: HostState, now: float) -> list[Text]:
    """The row of a host, in the order of HOST_COLUMNS."""
    use, age = host.summary, now - host.time
    link = use.link_share
    least, most = _share(use.gpu_utilisation_least), _share(use.gpu_utilisation_most)
    gpus = _share(use.gpu_utilisation)
    return [
        Text(printable(use.host) or " ", "bold"),
        Text(f"{use.cpu:.0%}"),
        Text(_share(use.cpu_own)),
        *(Text(_share(share), _alarm(share, DISTURBED_SHARE)) for share in (use.cpu_others, use.cpu_steal)),
        Text(f"{use.memory:.0%}"),
        *(Text(_rate(use.sent_mbit_per_second / unit)) for unit in (1, BITS)),
        *(Text(_rate(use.received_mbit_per_second / unit)) for unit in (1, BITS)),
        Text("?" if link is None else f"{link:.0%}", _alarm(link, BUSY_LINK)),
        Text(f"{use.gpu_count} x {gpus}" if use.gpu_count > 1 else gpus),
        Text(f"{least}-{most}" if use.gpu_count > 1 and least != most else ""),
        Text(_share(use.gpu_memory)),
        Text(_share(use.gpu_power)),
        Text("now" if age < PRESENT_SECONDS else f"{elapsed(age)} ago"),
    ]


def _alarm(value: float | None, bound: float) -> str:
    """The style of a value that should be below a bound."""
    return "bold red" if value is not None and value >= bound else ""


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _evaluation_lines(evaluations: Sequence[Evaluated], best: int | None, rows: int, width: int) -> list[Text]:
    """The newest evaluations on dev, a row each; the one at the best step is marked."""
    cells = [
        [
            Text(f"{one.step:,}"),
            Text(f"{one.eval_loss:.3f}"),
            Text(f"{one.perplexity:,.2f}"),
            Text(f"{one.bleu:.2f}", "bold"),
            Text("best" if one.step == best else "", "green").append(first_sentences_note(one.first_sentences), QUIET),
            Text(elapsed(one.seconds)),
        ]
        for one in evaluations[-rows:]
    ]
    return table(EVALUATION_COLUMNS, cells, width)


def _message_lines(messages: Sequence[Noticed | Ended], rows: int, width: int) -> list[Text]:
    """The newest messages in so many rows, the newest last; the oldest of them may lack its end."""
    lines: list[Text] = []
    for message in reversed(messages):
        clock = f"{datetime.fromtimestamp(message.timestamp):%H:%M}  "
        text = message.reason if isinstance(message, Ended) else message.message
        if len(lines) < rows:
            wrapped = textwrap.wrap(
                f"step {message.step:,}: {printable(text)}",
                width=max(width, 2 * len(clock)),
                initial_indent=clock,
                subsequent_indent=" " * len(clock),
                max_lines=rows - len(lines),
                placeholder=" ...",
            )
            lines = [Text.assemble((line[: len(clock)], QUIET), line[len(clock) :]) for line in wrapped] + lines
    return lines
