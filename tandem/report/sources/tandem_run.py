"""A run of Tandem's own: its journals, settings, corpus and checkpoints."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from psutil import pid_exists

from tandem.cluster.network import host_name
from tandem.cluster.traffic import BYTES_A_VALUE
from tandem.config import Config, load_saved
from tandem.corpus.prepared import read_facts
from tandem.errors import TandemError
from tandem.monitor.journal import read_journal
from tandem.monitor.records import WORKED_IN_PARTS
from tandem.report.record import (
    NOTHING,
    Checkpoint,
    CheckpointFile,
    Curve,
    GpuCurves,
    Holding,
    HostCurves,
    RunRecord,
    Schedule,
    Session,
    Split,
    State,
    Team,
    Text,
)
from tandem.report.sources.journals import GPU_COLUMNS, HOST_COLUMNS, Fact, Rows, Start, Story, read_story
from tandem.train.run import CONFIG_FILE, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, Run, RunPaths
from tandem.train.schedule import learning_rate

T = TypeVar("T")
# A training gives a sign of life every second; one that has been silent for so long is not alive any more.
SILENCE_SECONDS = 30.0
WHAT_FILES_ARE: dict[str, tuple[str, Holding]] = {
    MODEL_FILE: ("the weights: all that is needed to translate", "weights"),
    OPTIMIZER_FILE: ("Adam's two means of every weight: needed only to go on training", "optimizer"),
    STATE_FILE: ("step, progress, versions, and the checksums of the other files", "other"),
}
# Journals that together take a second or more to read are worth the start of more processes.
LONG_BYTES = 100_000_000
# A checkpoint, as tandem.train.checkpoint names it, which cannot be asked without torch.
CHECKPOINT = re.compile(r"step-(\d{8,})")
# What tandem.train.step notes when it splits micro-batches.
SPLIT = re.compile(rf"step (\d{{1,12}}): .* {WORKED_IN_PARTS} (\d{{1,6}}) parts.*")
RANK = re.compile(r"rank-(\d+)\.jsonl")


def read_tandem_run(directory: Path) -> RunRecord:
    """All that a run's directory tells; what is missing or damaged is named, and the rest used."""
    problems: list[str] = []
    stories = _stories(directory, problems)
    story = stories[0] if stories else Story()
    config = _attempt(lambda: load_saved(directory / CONFIG_FILE), problems)
    texts = _texts(directory, problems)
    # What holds for all ranks is told by each of them.
    start = next((other.starts[-1] for other in stories if other.starts), None)
    progress = story.progress
    state, failure = _state(story, time.time())
    return RunRecord(
        source="Tandem run",
        path=str(directory),
        state=state,
        failure=failure,
        not_finite=failure is not None and "not finite" in failure,
        sessions=_sessions(story),
        max_steps=_max_steps(start, config),
        train_loss=_curve(progress, "train_loss"),
        eval_loss=_curve(story.evaluations, "eval_loss"),
        bleu=_curve(story.evaluations, "bleu"),
        bleu_note=next((record["signature"] for record in reversed(story.evaluations)), None),
        learning_rate=_curve(progress, "learning_rate"),
        step_seconds=_curve(progress, "step_seconds"),
        steps_per_point=float(np.median([record["steps"] for record in progress])) if progress else None,
        parts=_parts(progress),
        exchanged_bytes=_per_step(progress, lambda record: record["exchanged_bytes"]),
        network_bytes=_per_step(
            progress, lambda record: max(record["network_sent_bytes"], record["network_received_bytes"])
        ),
        seconds=story.seconds,
        repeated_steps=story.repeated_steps,
        splits=_splits(story.notes),
        team=_team(start, stories),
        hosts=_hosts(stories),
        schedule=None if config is None else _schedule(config),
        texts=texts,
        checkpoint=_checkpoint(RunPaths(directory).checkpoints_directory, problems),
        events=tuple(story.notes),
        problems=tuple(problems),
    )


def _stories(directory: Path, problems: list[str]) -> list[Story]:
    """What each rank tells, lowest rank first."""
    found = sorted(
        (int(match[1]), path)
        for path in RunPaths(directory).journal_directory.glob("*")
        if (match := RANK.fullmatch(path.name))
    )
    if not found:
        problems.append("the run has no journal: it was never started, or its files were moved")
    stories = []
    for (rank, path), story in zip(found, _read_all([path for _, path in found]), strict=True):
        if isinstance(story, OSError):
            problems.append(f"{path}: cannot be read ({story.strerror})")
            continue
        if story.unreadable:
            problems.append(
                f"{path}: {story.unreadable} records of rank {rank} are incomplete or damaged and were passed over"
            )
        if story.sessions:
            stories.append(story)
        else:
            problems.append(f"{path}: holds no record that can be read")
        if any(session.implied for session in story.sessions):
            problems.append(f"{path}: the record of the start is lost; the first record there is counts as the start")
    _name_missing_hosts([story.starts[-1] for story in stories if story.starts], len(stories), problems)
    return stories


def _name_missing_hosts(starts: Sequence[Start], journals: int, problems: list[str]) -> None:
    # A journal without its start may be of any host.
    if not starts or len(starts) < journals:
        return
    if missing := set(starts[0].hosts) - {start.host for start in starts}:
        problems.append(
            f"no journal of {', '.join(sorted(missing))} is here ({journals} of {starts[0].world_size} ranks): "
            "of these hosts only the summaries at each log line are known; copy their journal files here for more"
        )


def _read_all(paths: Sequence[Path]) -> list[Story | OSError]:
    """Every journal's story, or why it cannot be read; long ones by all processors together."""
    firsts = [path is paths[0] for path in paths]
    if sum(path.stat().st_size for path in paths if path.exists()) < LONG_BYTES:
        return list(map(_read, paths, firsts))
    with ProcessPoolExecutor() as readers:
        return list(readers.map(_read, paths, firsts))


def _read(path: Path, first: bool) -> Story | OSError:
    """The surveys of all hosts are needed once."""
    try:
        return read_story(read_journal(path, without=() if first else ("surveyed",)))
    except OSError as error:
        return error


def _attempt(action: Callable[[], T], problems: list[str]) -> T | None:
    """What may fail for the user's reasons, which then become a problem."""
    try:
        return action()
    except TandemError as error:
        problems.append(str(error))
        return None


def _state(story: Story, now: float) -> tuple[State, str | None]:
    """How the run stands, and what made it fail."""
    if not story.sessions:
        return "unknown", None
    last = story.sessions[-1]
    if last.reason is None:
        heard = last.last_heard is not None and now - last.last_heard < SILENCE_SECONDS
        # Of a process on this host it is known at once whether it lives.
        gone = story.starts and story.starts[-1].host == host_name() and not pid_exists(story.starts[-1].process)
        if heard and not gone:
            return "running", None
        return "crashed", "it was killed or lost its machine: the journal ends in mid-run, without a word"
    if last.reason.startswith("failed: "):
        return "crashed", last.reason.removeprefix("failed: ").rstrip(". ")
    return ("finished" if last.reason == "finished" else "stopped"), None


def _sessions(story: Story) -> tuple[Session, ...]:
    return tuple(
        Session(
            first_step=session.first_step,
            last_step=session.last_step,
            started=session.started - session.startup_seconds,
            ended=session.last_heard,
            reason=session.reason,
            startup_seconds=session.startup_seconds,
        )
        for session in story.sessions
    )


def _max_steps(start: Start | None, config: Config | None) -> float | None:
    if start is not None:
        return float(start.max_steps)
    return None if config is None else float(config.train.max_steps)


def _curve(records: Sequence[Fact], key: str) -> Curve:
    """In order of steps, also where the record of a resume is lost."""
    return Curve.of((record["step"], record[key]) for record in records)


def _per_step(progress: Sequence[Fact], value: Callable[[Fact], float]) -> Curve:
    """Per step of each stretch; nothing at all where nothing ever was."""
    curve = Curve.of((record["step"], value(record) / record["steps"]) for record in progress)
    return curve if curve.values.any() else NOTHING


def _parts(progress: Sequence[Fact]) -> dict[str, Curve]:
    names = list(dict.fromkeys(part for record in progress for part in record["seconds"]))
    return {
        name: Curve.of((record["step"], record["seconds"].get(name, 0.0) / record["steps"]) for record in progress)
        for name in names
    }


def _splits(notes: Sequence[tuple[float, str]]) -> tuple[Split, ...]:
    return tuple(
        Split(step=float(match[1]), parts=int(match[2])) for _, note in notes if (match := SPLIT.fullmatch(note))
    )


def _team(start: Start | None, stories: Sequence[Story]) -> Team:
    if start is None:
        return Team()
    plan = stories[0].plan
    cards = tuple(dict.fromkeys(story.starts[-1].card for story in stories if story.starts and story.starts[-1].card))
    exchange = "allreduce" if plan is None else plan.exchange
    return Team(
        ranks=start.world_size,
        hosts=len(start.hosts),
        parameters=start.parameters,
        # Local steps travel as four bits.
        gradient_bytes_per_value=BYTES_A_VALUE.get("int4" if exchange == "diloco" else exchange),
        exchange=exchange,
        local_steps=1 if plan is None else plan.local_steps,
        device=start.card or start.device,
        precision=start.precision,
        cards=cards,
        card_memory_bytes=start.card_memory_bytes,
        compiled=start.compiled,
        deterministic=_deterministic(stories),
        batch_tokens=start.batch_tokens,
        micro_batches=start.micro_batches,
    )


def _deterministic(stories: Sequence[Story]) -> bool | None:
    """Whether every session was; None where one of them does not tell and none was not."""
    told = {start.deterministic for story in stories for start in story.starts}
    return False if False in told else None if None in told else True


def _hosts(stories: Sequence[Story]) -> tuple[HostCurves, ...]:
    """Of every host its samples, or, if its journal is not here, what it told the others."""
    samples: dict[str, Rows] = {}
    links: dict[str, tuple[str | None, float | None]] = {}
    gpus: dict[str, dict[int, Rows]] = {}
    for story in stories:
        samples.update(story.samples)
        gpus.update(story.gpu_samples)
        # A host's own samples know its interface, what it told the others does not.
        links.update({name: link for name, link in story.links.items() if name not in links or link[0] is not None})
    summaries = stories[0].summaries if stories else {}
    # A session that was taken back may have been all that was known of a host.
    known = {name: samples.get(name) or summaries.get(name) for name in (*summaries, *samples)}
    return tuple(
        HostCurves(
            name=name,
            interface=links[name][0],
            link_mbit_per_second=links[name][1],
            curves=_curves(rows, HOST_COLUMNS),
            gpus=tuple(
                GpuCurves(index=index, curves=_curves(one, GPU_COLUMNS))
                for index, one in sorted(gpus.get(name, {}).items())
                if one
            ),
        )
        for name, rows in known.items()
        if rows
    )


def _curves(rows: Rows, names: Sequence[str]) -> dict[str, Curve]:
    """The columns of rows that begin with their step, without those of which nothing is known."""
    table = np.frombuffer(rows, dtype=np.float64).reshape(-1, 1 + len(names))
    if np.any(np.diff(table[:, 0]) < 0):
        table = table[np.argsort(table[:, 0], kind="stable")]
    columns = ((name, table[:, number + 1]) for number, name in enumerate(names))
    return {name: Curve(table[:, 0], values) for name, values in columns if not np.isnan(values).all()}


def _schedule(config: Config) -> Schedule:
    schedule, warmup = config.schedule, config.schedule.warmup_steps
    peak = learning_rate(config, warmup)
    falls = (
        f"then falls along half a cosine to zero at step {config.train.max_steps:,}"
        if schedule.kind == "cosine"
        else "then falls with the inverse root of the step"
    )
    source = f" (scale {schedule.scale:g}, width {config.model.d_model})" if schedule.kind == "noam" else ""
    return Schedule(
        explanation=f"rises linearly over {warmup:,} steps to {peak:.2e}{source}, {falls}, whatever the loss does",
        rate=lambda step: learning_rate(config, max(int(step), 1)),
    )


def _texts(directory: Path, problems: list[str]) -> tuple[Text, ...]:
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
        Text(
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


def _checkpoint(directory: Path, problems: list[str]) -> Checkpoint | None:
    """The newest one."""
    named = ((CHECKPOINT.fullmatch(path.name), path) for path in directory.glob("step-*") if path.is_dir())
    steps = sorted(((int(match[1]), path) for match, path in named if match), reverse=True)
    kept = [(step, path, sizes) for step, path in steps if (sizes := _sizes(path, problems))]
    if not kept:
        return None
    step, newest, sizes = kept[0]
    files = tuple(
        CheckpointFile(name=name, bytes=size, what=what, holds=holds)
        for name, size in sorted(sizes.items())
        for what, holds in [WHAT_FILES_ARE.get(name, ("not written by Tandem", "other"))]
    )
    return Checkpoint(
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
