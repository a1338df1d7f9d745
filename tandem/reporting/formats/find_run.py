"""Finds the run that a file or directory holds, and reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from tandem.errors import TandemError
from tandem.layout import RunPaths, journal_files, run_of_file
from tandem.reporting.formats.log_format import Candidate, known_formats
from tandem.reporting.formats.recognise import Recogniser
from tandem.reporting.run_record import RunRecord

# Deeper directories are not a run's own; and a home directory given by mistake is soon searched.
_DEEPEST = 4
_MOST_FILES = 5_000
# Runs in one directory that are read to find the one with the most points; larger files come first.
_MOST_RUNS = 12
_MOST_NAMED = 5


def read_run(path: Path) -> RunRecord:
    """Read the run in a file or directory, whatever program wrote it."""
    formats, left_out = known_formats()
    recogniser = Recogniser(formats, left_out)
    if not path.exists():
        raise TandemError(f"{path}: there is no such file or directory; {recogniser.readable}")
    try:
        record = _read(path, recogniser)
    except OSError as error:
        raise TandemError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    return replace(record, problems=(*record.problems, *left_out))


def _read(path: Path, recogniser: Recogniser) -> RunRecord:
    if path.is_dir():
        paths = RunPaths(path)
        is_tandem_run = paths.run_file.is_file() or bool(journal_files(paths.journals))
        return _read_tandem(path) if is_tandem_run else _read_directory(path, recogniser)
    if (run := run_of_file(path)) is not None:
        return _read_tandem(run)
    return recogniser.format_of(path).read(path)


def _read_tandem(directory: Path) -> RunRecord:
    # Not needed for the logs of others, and half of what they would take to start.
    from tandem.reporting.formats.tandem_run import read_tandem_run

    return read_tandem_run(directory)


def _read_directory(directory: Path, recogniser: Recogniser) -> RunRecord:
    """The run in a directory that has the most points; the others are named among its problems."""
    problems: list[str] = []
    candidates = sorted(
        _candidates(directory, recogniser, problems), key=lambda candidate: (-candidate.size, str(candidate.path))
    )
    records: list[tuple[Candidate, RunRecord]] = []
    faults: list[str] = []
    for candidate in candidates[:_MOST_RUNS]:
        try:
            records.append((candidate, candidate.read()))
        except TandemError as fault:
            faults.append(str(fault))
    if not records:
        nothing = f"{directory} holds no run that is known; {recogniser.readable}"
        raise TandemError(faults[0] if len(faults) == 1 else nothing)
    chosen, best = max(records, key=lambda pair: pair[1].points)
    others = [str(candidate.path) for candidate, _ in records if candidate is not chosen]
    others += [str(candidate.path) for candidate in candidates[_MOST_RUNS:]]
    if others:
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        problems.append(
            f"{directory} holds several runs or logs; {chosen.path} tells most and was read. "
            f"Left out: {', '.join(others[:_MOST_NAMED])}{more}. To read one of them: tandem report {others[0]}"
        )
    return replace(best, problems=(*best.problems, *problems))


def _candidates(directory: Path, recogniser: Recogniser, problems: list[str]) -> Iterator[Candidate]:
    """Everything below a directory that may be a run; broken links become problems."""
    ours: set[Path] = set()
    others: list[Path] = []
    for path in _files(directory):
        if (run := run_of_file(path)) is not None:
            ours.add(run)
        else:
            others.append(path)
    for run in sorted(ours):
        yield Candidate(run, list(journal_files(RunPaths(run).journals).values()), partial(_read_tandem, run))
    recognised = [(path, recogniser.in_directory(path)) for path in others if ours.isdisjoint(path.parents)]
    problems += [f"{path} leads nowhere and was left out." for path, known in recognised if known and not path.exists()]
    for known in recogniser.formats:
        files = [path for path, found in recognised if found is known and path.exists()]
        yield from known.candidates(files, directory)


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
