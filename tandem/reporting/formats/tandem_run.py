"""A run of Tandem's own: its journals, settings, corpus and checkpoints."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from psutil import pid_exists

from tandem.cluster.exchange.traffic import BASELINE
from tandem.config import Config, ExchangeConfig
from tandem.corpus.prepared import read_facts
from tandem.errors import TandemError
from tandem.layout import (
    MODEL_FILE,
    OPTIMIZER_FILE,
    STATE_FILE,
    SUMS_FILE,
    UNAVERAGED_FILE,
    RunPaths,
    checkpoint_directories,
    journal_files,
)
from tandem.metrics import BLEU, DEV, LOSS, METRICS, metric_label
from tandem.model.memory_estimate import FLOAT32
from tandem.monitor.network_interfaces import host_name
from tandem.monitor.records import (
    CONTINUING_FROM,
    EXPLODED,
    FAILED,
    FINISHED,
    NOT_FINITE,
    WORKED_IN_PARTS,
    Evaluated,
    Planned,
    Progressed,
    Started,
    Surveyed,
)
from tandem.reporting.formats.tandem_journals import GPU_COLUMNS, HOST_COLUMNS, RankHistory, Rows, read_history
from tandem.reporting.run_record import (
    NOTHING,
    CheckpointFacts,
    CheckpointFile,
    Curve,
    GpuCurves,
    Holding,
    HostCurves,
    MicroBatchSplit,
    RunRecord,
    Schedule,
    State,
    Team,
    TrainingText,
)
from tandem.schedules.schedule import schedule_of
from tandem.training.run_directory import Run

T = TypeVar("T")
# A training gives a sign of life every few seconds; one that has been silent for so long is not alive any more.
SILENCE_SECONDS = 30.0
WHAT_FILES_ARE: dict[str, tuple[str, Holding]] = {
    MODEL_FILE: ("the weights: all that is needed to translate", "weights"),
    UNAVERAGED_FILE: ("the weights of the last step, not averaged: needed only to go on training", "other"),
    OPTIMIZER_FILE: ("Adam's two means of every weight: needed only to go on training", "optimizer"),
    STATE_FILE: ("step, progress, versions, and the checksums of weights and means", "other"),
    SUMS_FILE: ("checksums of all other files, as sha256sum writes them", "other"),
}
# Journals that together take a second or more to read are worth the start of more processes.
LONG_BYTES = 100_000_000
# What tandem.training.step notes when it splits micro-batches.
SPLIT = re.compile(rf"step (\d{{1,12}}): .* {WORKED_IN_PARTS} (\d{{1,6}}) parts.*")


def read_tandem_run(directory: Path) -> RunRecord:
    """All that a run's directory holds; what is missing or damaged is named, and the rest used."""
    problems: list[str] = []
    histories = _histories(directory, problems)
    history = histories[0] if histories else RankHistory()
    # Checkpoints that were damaged or incomplete, and the steps that it cost to do without them.
    problems += [note for _, note in history.notes if CONTINUING_FROM in note]
    config = _attempt(lambda: Config.load_saved(RunPaths(directory).config_file), problems)
    texts = _texts(directory, problems)
    # Every rank writes what holds for all of them.
    start = next((other.starts[-1] for other in histories if other.starts), None)
    progress = history.progress
    state, failure = _state(history, time.time())
    return RunRecord(
        source="Tandem run",
        path=str(directory),
        state=state,
        failure=failure,
        not_finite=failure is not None and any(words in failure for words in (NOT_FINITE, EXPLODED)),
        roll_backs=tuple(f"{back.reason}; it {back.remedy}" for back in history.roll_backs),
        sessions=tuple(history.sessions),
        origin=None if start is None else start.origin,
        first_step=float(history.first_step),
        steps_before=float(history.steps_before),
        max_steps=float(start.max_steps) if start else float(config.train.max_steps) if config else None,
        train_loss=_curve(progress, "train_loss"),
        eval_loss=_curve(history.evaluations, "eval_loss"),
        bleu=_curve(history.evaluations, "bleu"),
        bleu_note=history.evaluations[-1].signature if history.evaluations else None,
        bleu_first_sentences={
            float(record.step): record.first_sentences
            for record in history.evaluations
            if record.first_sentences is not None
        },
        dev_curves=_dev_curves((*history.evaluations, *history.other_evaluations)),
        dev_notes=tuple(dict.fromkeys(_signatures((*history.evaluations, *history.other_evaluations)))),
        learning_rate=_curve(progress, "learning_rate"),
        step_seconds=_curve(progress, "step_seconds"),
        steps_per_point=float(np.median([record.steps for record in progress])) if progress else None,
        parts=_parts(progress),
        exchanged_bytes=_per_step(progress, lambda record: record.exchanged_bytes),
        network_bytes=_per_step(progress, lambda record: max(record.network_sent_bytes, record.network_received_bytes)),
        seconds=history.seconds,
        repeated_steps=history.repeated_steps,
        silences=_silences(histories),
        splits=_splits(history.notes),
        team=_team(start, histories, ExchangeConfig() if config is None else config.exchange),
        hosts=_hosts(histories),
        schedule=None if config is None else _attempt(lambda: _schedule(config), problems),
        texts=texts,
        checkpoint=_checkpoint(RunPaths(directory).checkpoints, problems),
        events=tuple(history.notes),
        problems=tuple(problems),
    )


def _histories(directory: Path, problems: list[str]) -> list[RankHistory]:
    """What each rank's journal says, lowest rank first."""
    found = journal_files(RunPaths(directory).journals)
    if not found:
        problems.append("the run has no journal: it was never started, or its files were moved")
    histories = []
    for (rank, path), history in zip(found.items(), _read_all(list(found.values())), strict=True):
        if isinstance(history, OSError):
            problems.append(f"{path}: cannot be read ({history.strerror})")
            continue
        if history.unreadable:
            problems.append(
                f"{path}: {history.unreadable} records of rank {rank} are incomplete or damaged and were passed over"
            )
        if history.sessions:
            histories.append(history)
        else:
            problems.append(f"{path}: holds no record of a session that can be read")
        if history.start_lost:
            problems.append(f"{path}: the record of the start is lost; the first record there is counts as the start")
        elif rank == 0 and (before := history.steps_before) > history.first_step:
            # Any other process may have joined later, with its host.
            problems.append(
                f"the journal of the first process begins after step {before:,}: what came before is not known, as in "
                "a run that was brought back from its mirror"
            )
    _name_missing_hosts([history.starts[-1] for history in histories if history.starts], len(histories), problems)
    return histories


def _name_missing_hosts(starts: Sequence[Started], journals: int, problems: list[str]) -> None:
    # A journal without its start may be of any host.
    if not starts or len(starts) < journals:
        return
    if missing := set(starts[0].hosts) - {start.host for start in starts}:
        problems.append(
            f"no journal of {', '.join(sorted(missing))} is here ({journals} of {starts[0].world_size} ranks): "
            "of these hosts only the summaries at each log line are known; copy their journal files here for more"
        )


def _read_all(paths: Sequence[Path]) -> list[RankHistory | OSError]:
    """Every journal, or why it cannot be read; long ones by all processors together."""
    # The surveys of all hosts are in each journal, and needed once.
    unwanted = [() if path is paths[0] else (Surveyed.kind,) for path in paths]
    if sum(path.stat().st_size for path in paths if path.exists()) < LONG_BYTES:
        return list(map(_read, paths, unwanted))
    with ProcessPoolExecutor() as readers:
        return list(readers.map(_read, paths, unwanted))


def _read(path: Path, without: Sequence[str]) -> RankHistory | OSError:
    try:
        return read_history(path, without)
    except OSError as error:
        return error


def _attempt(action: Callable[[], T], problems: list[str]) -> T | None:
    """What may fail for the user's reasons, which then become a problem."""
    try:
        return action()
    except TandemError as error:
        problems.append(str(error))
        return None


def _state(history: RankHistory, now: float) -> tuple[State, str | None]:
    """How the run stands, and what made it fail."""
    if not history.sessions:
        return "unknown", None
    last = history.sessions[-1]
    if last.reason is None:
        # A process on this host is known to live or not; others are known by what they write.
        start = history.starts[-1] if history.starts else None
        gone = start is not None and start.host == host_name() and not pid_exists(start.process)
        if last.ended is not None and now - last.ended < SILENCE_SECONDS and not gone:
            return "running", None
        return "crashed", "it was killed or lost its machine: the journal ends in mid-run, without a word"
    if last.reason.startswith(FAILED):
        return "crashed", last.reason.removeprefix(FAILED).rstrip(". ")
    return ("finished" if last.reason == FINISHED else "stopped"), None


def _curve(records: Sequence[Progressed] | Sequence[Evaluated], field: str) -> Curve:
    """In order of steps, also where the record of a resume is lost."""
    return Curve.of((record.step, getattr(record, field)) for record in records)


def _dev_curves(evaluations: Sequence[Evaluated]) -> dict[str, Curve]:
    """Every metric on every dev set but loss and BLEU on dev, which have curves of their own."""
    points: dict[str, list[tuple[float, float]]] = {}
    for record in evaluations:
        for metric, value in record.values.items():
            known = metric == LOSS or metric in METRICS  # other versions may know more
            if known and (record.split, metric) not in ((DEV, LOSS), (DEV, BLEU)):
                points.setdefault(f"{record.split}/{metric}", []).append((record.step, value))
    return {name: Curve.of(found) for name, found in points.items()}


def _signatures(evaluations: Sequence[Evaluated]) -> Iterator[str]:
    for record in evaluations:
        yield from (f"{metric_label(found.metric)}: {found.signature}" for found in record.metrics)


def _per_step(progress: Sequence[Progressed], value: Callable[[Progressed], float]) -> Curve:
    """Per step of each stretch; nothing at all where nothing ever was."""
    curve = Curve.of((record.step, value(record) / record.steps) for record in progress)
    return curve if curve.values.any() else NOTHING


def _parts(progress: Sequence[Progressed]) -> dict[str, Curve]:
    names = dict.fromkeys(part for record in progress for part in record.seconds)
    return {
        name: Curve.of((record.step, record.seconds.get(name, 0.0) / record.steps) for record in progress)
        for name in names
    }


def _silences(histories: Sequence[RankHistory]) -> tuple[tuple[str, float], ...]:
    """Processes that were silent for a while: of each, what the processes of the host say that knows most.

    On every host one of them writes a silence down, but none of those that were stopped themselves.
    """
    accounts: dict[str, dict[str, list[float]]] = {}
    for history in histories:
        host = history.starts[-1].host if history.starts else ""
        for name, seconds in history.silences:
            accounts.setdefault(name, {}).setdefault(host, []).append(seconds)
    return tuple((name, seconds) for name, told in accounts.items() for seconds in max(told.values(), key=sum))


def _splits(notes: Sequence[tuple[float, str]]) -> tuple[MicroBatchSplit, ...]:
    return tuple(
        MicroBatchSplit(step=float(match[1]), parts=int(match[2]))
        for _, note in notes
        if (match := SPLIT.fullmatch(note))
    )


def _team(start: Started | None, histories: Sequence[RankHistory], settings: ExchangeConfig) -> Team:
    if start is None:
        return Team()
    plan = histories[0].plan
    newest = [history.starts[-1] for history in histories if history.starts]
    exchange = BASELINE if plan is None else plan.exchange
    return Team(
        ranks=start.world_size,
        hosts=len(start.hosts),
        parameters=start.parameters,
        gradient_bytes_per_value=_bytes_per_value(plan, settings),
        exchange=exchange,
        local_steps=1 if plan is None else max(plan.local_steps, 1),
        device=start.card or start.device,
        precision=start.precision,
        cards=tuple(dict.fromkeys(each.card for each in newest if each.card)),
        card_memory_bytes=start.card_memory_bytes,
        compiled=start.compiled,
        deterministic=_deterministic([each for history in histories for each in history.starts]),
        batch_tokens=start.batch_tokens,
        micro_batches=start.micro_batches,
    )


def _bytes_per_value(plan: Planned | None, settings: ExchangeConfig) -> float | None:
    """Bytes in which a value crosses the network; None where the strategy does not say, or is not to be had here."""
    if plan is None:
        return FLOAT32
    if plan.bytes_per_value is not None:
        return plan.bytes_per_value
    # Older versions did not write it down.
    from tandem.cluster.exchange.strategy import find_strategy

    try:
        return find_strategy(plan.exchange).sums_like(settings).bytes_per_value
    except TandemError:
        return None


def _deterministic(starts: Sequence[Started]) -> bool | None:
    """Whether every session was; None where a version that did not write it ran on a GPU."""
    if any(start.deterministic is False for start in starts):
        return False
    # A processor computes the same bits every time, also where nothing was written about it.
    return all(start.deterministic or start.device == "cpu" for start in starts) or None


def _hosts(histories: Sequence[RankHistory]) -> tuple[HostCurves, ...]:
    """Every host's samples, or, if its journal is not here, its summaries in another host's journal."""
    hosts = dict(histories[0].summaries) if histories else {}
    for history in histories:
        # A session that was taken back may have been all that a host's own journal says.
        hosts.update({name: host for name, host in history.samples.items() if host.rows})
    return tuple(
        HostCurves(
            name=name,
            interface=host.interface,
            link_mbit_per_second=host.link_mbit_per_second,
            curves=_curves(host.rows, HOST_COLUMNS),
            gpus=tuple(
                GpuCurves(index=index, curves=_curves(rows, GPU_COLUMNS))
                for index, rows in sorted(host.gpu_rows.items())
                if rows
            ),
        )
        for name, host in hosts.items()
        if host.rows
    )


def _curves(rows: Rows, names: Sequence[str]) -> dict[str, Curve]:
    """The columns of rows that begin with their step, without those of which nothing is known."""
    table = np.frombuffer(rows, dtype=np.float64).reshape(-1, 1 + len(names))
    if np.any(np.diff(table[:, 0]) < 0):
        table = table[np.argsort(table[:, 0], kind="stable")]
    columns = ((name, table[:, number + 1]) for number, name in enumerate(names))
    return {name: Curve(table[:, 0], values) for name, values in columns if not np.isnan(values).all()}


def _schedule(config: Config) -> Schedule:
    schedule = schedule_of(config)
    return Schedule(
        explanation=f"{schedule.describe(config)}, whatever the loss does",
        rate=lambda step: schedule.rate(config, max(int(step), 1)),
    )


def _texts(directory: Path, problems: list[str]) -> tuple[TrainingText, ...]:
    """The training text, if the corpus is still where it was."""
    run = _attempt(lambda: Run.open(directory), [])
    if run is None:
        return ()
    facts = _attempt(lambda: read_facts(run.corpus_directory), problems)
    if facts is None:
        return ()
    if facts.digest() != run.corpus_digest:
        problems.append(f"{run.corpus_directory}: is not the corpus of this run any more; its sizes are left out")
        return ()
    train = facts.splits["train"]
    return tuple(
        TrainingText(
            language=language,
            raw_lines=side.raw.lines,
            raw_bytes=side.raw.bytes,
            cleaned_lines=side.cleaned.lines,
            cleaned_bytes=side.cleaned.bytes,
            tokens=side.encoded.tokens,
            files=tuple(f"{file.name} (sha256 {file.sha256[:12]})" for file in side.inputs),
        )
        for language, side in ((facts.source_language, train.source), (facts.target_language, train.target))
    )


def _checkpoint(directory: Path, problems: list[str]) -> CheckpointFacts | None:
    """Facts about the newest checkpoint in a directory."""
    steps = reversed(checkpoint_directories(directory).items())
    kept = [(step, path, sizes) for step, path in steps if path.is_dir() and (sizes := _sizes(path, problems))]
    if not kept:
        return None
    step, newest, sizes = kept[0]
    files = tuple(
        CheckpointFile(name=name, bytes=size, what=what, holds=holds)
        for name, size in sorted(sizes.items())
        for what, holds in [WHAT_FILES_ARE.get(name, ("not written by Tandem", "other"))]
    )
    return CheckpointFacts(
        path=str(newest),
        step=step,
        files=files,
        kept=len(kept),
        kept_bytes=sum(sum(each.values()) for _, _, each in kept),
    )


def _sizes(checkpoint: Path, problems: list[str]) -> dict[str, int]:
    """The files of a checkpoint in bytes; none if it vanishes meanwhile: a run that goes on removes its oldest."""
    try:
        return {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    except FileNotFoundError:
        problems.append(f"{checkpoint}: a file of this checkpoint vanished while it was read, so it was left out")
        return {}
