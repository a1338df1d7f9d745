"""What a tracking service (W&B, MLflow) knows of a run: its own run's id and the last steps it was told."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tandem.config import Config
from tandem.monitor.records import Evaluated, Record, Started
from tandem.storage import read_json


class TrackedRun:
    """The counterpart of a run at a service, remembered in a file of the run's directory.

    A service cannot take back what it was told. Of a step that is taken again, after a kill or going back, it keeps
    what it was told first, so that its curves have one value a step.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._id: str | None = None
        self._told: dict[str, int] = {}
        """The last step told of, by series of records."""
        # A damaged file costs a new run at the service, no more.
        with suppress(OSError, ValueError, KeyError, TypeError):
            facts = read_json(file)
            self._told = {kind: int(step) for kind, step in dict(facts["told"]).items()}
            self._id = str(facts["id"])

    @property
    def id(self) -> str | None:
        """The service's id of its run; None before there is one."""
        return self._id

    def begin(self, id: str) -> None:
        """Note the run that the service has made."""
        self._id, self._told = id, {}
        self._write()

    def is_new(self, record: Record) -> bool:
        """Whether the service was not told yet of this step."""
        return record.step > self._told.get(_series(record), -1)

    def note_told(self, record: Record) -> None:
        series = _series(record)
        self._told[series] = max(record.step, self._told.get(series, -1))
        self._write()

    def _write(self) -> None:
        # Not forced to the disk: after a power cut some points come twice. Without room on the disk they do, too.
        partial = self._file.with_name(f".{self._file.name}.writing")
        with suppress(OSError):
            partial.write_text(json.dumps({"id": self._id, "told": self._told}) + "\n", encoding="utf-8")
            partial.replace(self._file)


def _series(record: Record) -> str:
    """What comes once a step: a kind of record, and of evaluations one for each dev set."""
    return f"{record.kind}/{record.split}" if isinstance(record, Evaluated) else record.kind


def settings_to_tell(config: Config) -> dict[str, Any]:
    """The resolved settings as other programs may have them: a command of the user's may name a password."""
    settings = config.model_dump(mode="json")
    del settings["train"]["on_preemption_notice"]
    return settings


def facts_to_tell(started: Started) -> dict[str, Any]:
    """What a session found out about its machines and text."""
    names = ("version", "parameters", "world_size", "hosts", "device", "card", "precision", "corpus_digest")
    return {name: getattr(started, name) for name in (*names, "training_pairs", "steps_per_epoch")}
