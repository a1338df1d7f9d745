"""Reads the trainer_state.json that HuggingFace's Trainer writes into every checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tandem.errors import TandemError
from tandem.reporting.formats.log_format import Candidate, LogFormat
from tandem.reporting.formats.shared.timed_series import Event, record_of_events
from tandem.reporting.run_record import RunRecord, TrainingSession

FILE_NAME = "trainer_state.json"
_CHECKPOINT = "checkpoint-"
# What the last entry says of the whole training.
_SUMMARY = "train_runtime"


def read_trainer_state(path: Path) -> RunRecord:
    """The run up to the checkpoint, or to its end, that the file was written at."""
    state = _contents(path)
    history = [entry for entry in state["log_history"] if isinstance(entry, dict) and _is_number(entry.get("step"))]
    tags: dict[str, list[Event]] = {}
    seconds = None
    for entry in history:
        if _SUMMARY in entry:
            # Its means are of the whole run, those of other entries of the steps since the last one.
            seconds = entry[_SUMMARY] if _is_number(entry[_SUMMARY]) else None
            continue
        for name, value in entry.items():
            if _is_number(value):
                tags.setdefault(name, []).append(Event(float(entry["step"]), float(value)))
    record = record_of_events(tags, path, "HuggingFace trainer state", axis="step")
    planned, taken = (
        float(state[name]) if _is_number(state.get(name)) else 0.0 for name in ("max_steps", "global_step")
    )
    if seconds is not None and record.last_step:
        # Only how long it took is known, not when.
        session = TrainingSession(first_step=0.0, last_step=record.last_step, started=0.0, ended=float(seconds))
        record = replace(record, sessions=(session,))
    return replace(
        record,
        state="finished" if taken >= planned > 0 else "unknown",
        max_steps=planned if planned > 0 else None,
    )


def _contents(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise TandemError(f"{path}: is not whole JSON ({error}); look for the file in another checkpoint") from error
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise TandemError(f"{path}: has no log_history; give a trainer_state.json as HuggingFace's Trainer writes it")
    return state


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold; JSON's integers have any length."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, float) or (whole and abs(value) <= sys.float_info.max)


def _group(files: Sequence[Path], top: Path) -> Iterator[Candidate]:
    """The checkpoints of a run each hold its history up to there: the longest one is the run's."""
    runs: dict[Path, list[Path]] = {}
    for path in files:
        place = path.parent
        runs.setdefault(place.parent if place.name.startswith(_CHECKPOINT) else place, []).append(path)
    for paths in runs.values():
        longest = max(paths, key=lambda path: (path.stat().st_size, str(path)))
        yield Candidate(longest, [longest], partial(read_trainer_state, longest))


FORMAT = LogFormat(
    title="a HuggingFace trainer_state.json",
    read=read_trainer_state,
    lines={'"log_history"': r'"log_history"\s*:'},
    file_name=FILE_NAME,
    group=_group,
)
