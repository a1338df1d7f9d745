"""Finds out what a file or directory holds, and reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path

from tandem.errors import TandemError
from tandem.report.record import RunRecord
from tandem.report.sources.fairseq import read_fairseq
from tandem.report.sources.joeynmt import read_joeynmt
from tandem.report.sources.launch import read_failed_launch
from tandem.report.sources.marian import read_marian
from tandem.report.sources.measured import completed
from tandem.report.sources.names import is_one_side, without_side
from tandem.report.sources.openseq2seq import read_openseq2seq
from tandem.report.sources.recognise import READABLE, Kind, kind_of
from tandem.report.sources.table import read_table

_EVENT_FILE = "tfevents"
# Where runs keep their logs; other files of a run are text, weights and settings, and may be many and large.
_LOG_SUFFIXES = frozenset({".log", ".out", ".err", ".txt", ".csv", ".tsv", ""})
# A run's own directories; deeper ones are of something else. A home directory given by mistake ends soon, too.
_DEEPEST = 4
_MOST_FILES = 5_000
# Runs in one directory that are read to find the one that says most; larger ones are looked at first.
_MOST_RUNS = 12
_MOST_NAMED = 5


@dataclass(frozen=True)
class _Candidate:
    """Something in a directory that may be a run."""

    path: Path
    size: int
    read: Callable[[], RunRecord]


def read_run(path: Path) -> RunRecord:
    """What is known of the run in a file or directory, whoever wrote it."""
    if not path.exists():
        raise TandemError(f"{path}: there is no such file or directory; {READABLE}")
    try:
        if path.is_dir():
            return _read_tandem(path) if _is_tandem_run(path) else _read_directory(path)
        if path.parent.name == "journal" and path.suffix == ".jsonl":
            return _read_tandem(path.parent.parent)
        return _read_file(path, kind_of(path))
    except OSError as error:
        raise TandemError(f"{error.filename or path} cannot be read: {error.strerror}") from error


def evidence(record: RunRecord) -> int:
    """How much a record tells: its points."""
    curves = (record.train_loss, record.eval_loss, record.bleu, record.learning_rate, record.step_seconds)
    return sum(len(curve) for curve in curves)


def _is_tandem_run(directory: Path) -> bool:
    return (directory / "run.json").is_file() or any((directory / "journal").glob("*.jsonl"))


def _read_tandem(directory: Path) -> RunRecord:
    from tandem.report.sources.tandem_run import read_tandem_run

    return read_tandem_run(directory)


def _read_file(path: Path, kind: Kind) -> RunRecord:
    if kind == "tensorboard":
        return _read_events(path, [path])
    readers: dict[Kind, Callable[[Path], RunRecord]] = {
        "openseq2seq": read_openseq2seq,
        "joeynmt": read_joeynmt,
        "joeynmt_log": read_joeynmt,
        "fairseq": read_fairseq,
        "marian": read_marian,
        "table": read_table,
        "mpirun": read_failed_launch,
    }
    return readers[kind](path)


def _read_events(path: Path, places: list[Path]) -> RunRecord:
    # Half of what this command would otherwise take to start.
    from tandem.report.sources.tensorboard_events import read_tensorboard

    return read_tensorboard(path, places)


def _read_directory(directory: Path) -> RunRecord:
    """The run in a directory that says most; the others are named."""
    lost: list[Path] = []
    candidates = sorted(_candidates(directory, lost), key=lambda candidate: (-candidate.size, str(candidate.path)))
    records: list[tuple[_Candidate, RunRecord]] = []
    faults: list[str] = []
    for candidate in candidates[:_MOST_RUNS]:
        try:
            records.append((candidate, candidate.read()))
        except TandemError as fault:
            faults.append(str(fault))
    if not records:
        raise TandemError(faults[0] if len(faults) == 1 else f"{directory} holds no run that is known; {READABLE}")
    chosen, best = max(records, key=lambda pair: evidence(pair[1]))
    others = [str(candidate.path) for candidate, _ in records if candidate is not chosen]
    others += [str(candidate.path) for candidate in candidates[_MOST_RUNS:]]
    problems = [*best.problems, *(f"{path} leads nowhere and was left out." for path in lost)]
    if not others:
        return replace(best, problems=tuple(problems))
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    shown = ", ".join(others[:_MOST_NAMED])
    note = (
        f"{directory} holds several runs or logs; {chosen.path} tells most and was read. Left out: {shown}{more}. "
        f"To read one of them: tandem report {others[0]}"
    )
    return replace(best, problems=(*problems, note))


def _candidates(directory: Path, lost: list[Path]) -> Iterator[_Candidate]:
    """What may be a run; links to files that are gone go to `lost`."""
    ours: set[Path] = set()
    events: list[Path] = []
    texts: list[Path] = []
    for path in _files(directory):
        if _EVENT_FILE in path.name and not path.exists():
            lost.append(path)
        elif path.name == "run.json":
            ours.add(path.parent)
        elif path.suffix == ".jsonl" and path.parent.name == "journal":
            ours.add(path.parent.parent)
        elif _EVENT_FILE in path.name:
            events.append(path)
        elif path.suffix in _LOG_SUFFIXES:
            texts.append(path)
    for run in sorted(ours):
        yield _Candidate(run, _size(list((run / "journal").glob("*.jsonl"))), partial(_read_tandem, run))
    yield from _event_candidates([path for path in events if ours.isdisjoint(path.parents)], directory)
    kinds = ((path, _known_kind(path)) for path in texts if ours.isdisjoint(path.parents))
    yield from _log_candidates({path: kind for path, kind in kinds if kind is not None})


def _event_candidates(events: list[Path], top: Path) -> Iterator[_Candidate]:
    """The event files of a run lie in one directory, or in one for each side of it."""
    runs: dict[Path, list[Path]] = {}
    for path in events:
        runs.setdefault(_run_of(path.parent, top), []).append(path)
    for run, files in runs.items():
        yield _Candidate(run, _size(files), partial(_read_events, run, sorted({file.parent for file in files})))


def _log_candidates(logs: dict[Path, Kind]) -> Iterator[_Candidate]:
    """Logs that complete each other are one run: JoeyNMT's two files, and a table for each side of a run."""
    beside = {path.parent: path for path, kind in logs.items() if kind == "joeynmt_log"}
    told = {path.parent for path, kind in logs.items() if kind == "joeynmt"}
    sides: dict[tuple[Path, tuple[str, ...]], list[Path]] = {}
    for path, kind in logs.items():
        if kind == "joeynmt":
            yield _Candidate(path, _size([path]), partial(read_joeynmt, path, beside.get(path.parent)))
        elif kind == "table" and (others := without_side(path.name)) is not None:
            sides.setdefault((path.parent, others), []).append(path)
        elif kind != "joeynmt_log" or path.parent not in told:
            yield _Candidate(path, _size([path]), partial(_read_file, path, kind))
    for paths in sides.values():
        yield _Candidate(paths[-1], _size(paths), partial(_read_sides, paths))


def _read_sides(paths: list[Path]) -> RunRecord:
    """The tables of all sides as one run: each has what the others lack."""
    return reduce(completed, [read_table(path) for path in reversed(paths)])


def _known_kind(path: Path) -> Kind | None:
    try:
        return kind_of(path)
    except TandemError:
        return None


def _run_of(events: Path, top: Path) -> Path:
    """The run that a directory of event files belongs to: train/ and valid/ are two sides of the one above."""
    return events.parent if events != top and is_one_side(events.name) else events


def _files(top: Path) -> Iterator[Path]:
    """The files of a directory tree, in order, to a sensible depth and number."""
    seen = 0
    for place, directories, names in os.walk(top):
        here = Path(place)
        directories.sort()
        deep = len(here.relative_to(top).parts) >= _DEEPEST
        directories[:] = [name for name in directories if not deep and not name.startswith(".")]
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                return
            yield here / name


def _size(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.exists())
