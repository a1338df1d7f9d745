"""The MLflow view of a run: the scalars of its records, its settings as parameters, and how it ended.

MLFLOW_TRACKING_URI names the server or store, MLFLOW_EXPERIMENT_NAME the experiment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tandem.config import Config
from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.monitor.background_view import WAITING_RECORDS
from tandem.monitor.records import Ended, Record, Started
from tandem.monitor.scalars import scalars_of
from tandem.monitor.secrets import error_without_secrets
from tandem.monitor.tracked_run import TrackedRun, facts_to_tell, settings_to_tell
from tandem.monitor.views import View

# How MLflow is used is not reported to its makers from here.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
try:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import MlflowException
except ImportError as error:
    raise TandemError("mlflow: MLflow's library is not installed; pip install 'tandem-nmt[mlflow]'") from error

SERVICE = "mlflow"
EXPERIMENT = "tandem"
# What a request to MLflow may hold.
PARAMETERS_OF_REQUEST = 100
LONGEST_PARAMETER = 500


class MlflowView(View):
    """Shows the records as an MLflow run, which a resumed run goes on with.

    What a server does not take waits, and is tried again with the next record: that is said once.
    """

    def __init__(self, run: RunPaths, config: Config) -> None:
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            raise TandemError("MLFLOW_TRACKING_URI is not set; give it the address of your MLflow server")
        self._client = MlflowClient(tracking_uri=place)
        self._name, self._config = run.directory.resolve().name, config
        self._tracked = TrackedRun(run.told_file(SERVICE))
        self._id: str | None = None
        """MLflow's run, once this session has begun with it."""
        self._waiting: list[tuple[int, Record]] = []
        """Records that are yet to be told, with the milliseconds since 1970 when they were shown."""
        self._lost = 0
        self._trouble = ""
        self._failing = False

    def show(self, record: Record) -> None:
        if isinstance(record, Started | Ended) or (scalars_of(record) and self._tracked.is_new(record)):
            if len(self._waiting) < WAITING_RECORDS:
                self._waiting.append((int(time.time() * 1000), record))
            else:
                self._lost += 1
        if self._waiting:
            self._send()

    def pop_trouble(self) -> str:
        trouble, self._trouble = self._trouble, ""
        return trouble

    def close(self) -> None:
        if missing := len(self._waiting) + self._lost:
            self._trouble = f"MLflow has not taken {missing:,} records of this session, which are missing there"

    def _send(self) -> None:
        try:
            if self._id is None:
                self._id = self._begin()
            while self._waiting:
                self._tell(self._id, *self._waiting[0])
                del self._waiting[0]
        except Exception as error:  # its stores raise what their libraries do
            if not self._failing:
                self._trouble = (
                    f"MLflow takes no records now ({error_without_secrets(error)}); they wait, and are sent as soon as "
                    "it does"
                )
            self._failing = True
            return
        if self._failing:
            missing = f"; {self._lost:,} records are missing" if self._lost else ""
            self._trouble, self._failing, self._lost = f"MLflow takes records again{missing}", False, 0

    def _begin(self) -> str:
        """MLflow's run of ours: the one of the session before, or a new one."""
        id = self._tracked.id
        known = None if id is None else self._known(id)
        if known is None:
            id = self._client.create_run(self._experiment(), run_name=self._name).info.run_id
            self._tracked.begin(id)
        else:
            id = known.info.run_id
            self._client.update_run(id, status="RUNNING")
        before = {} if known is None else known.data.params
        now = dict(_flat(settings_to_tell(self._config)))
        added = [Param(key, value) for key, value in now.items() if key not in before]
        for start in range(0, len(added), PARAMETERS_OF_REQUEST):
            self._client.log_batch(id, params=added[start : start + PARAMETERS_OF_REQUEST])
        # MLflow's parameters never change; a tag says what --change has changed.
        changed = [f"{key}: {before[key]} -> {value}" for key, value in now.items() if before.get(key, value) != value]
        if changed:
            self._client.set_tag(id, "changed_settings", "\n".join(changed))
        return str(id)

    def _known(self, id: str) -> Any:
        """The run of the session before; None if it was deleted, or is another server's."""
        try:
            run = self._client.get_run(id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _tell(self, id: str, at: int, record: Record) -> None:
        match record:
            case Started():
                tags = [RunTag(f"session.{key}", value) for key, value in _flat(facts_to_tell(record))]
                self._client.log_batch(id, tags=tags)
            case Ended():
                self._client.set_tag(id, "ended", record.reason)
                self._client.set_terminated(id, status="FAILED" if record.failed else "FINISHED")
            case _:
                points = [Metric(tag, value, at, record.step) for tag, value in scalars_of(record).items()]
                # Noted first: what a kill between the two takes is a point, not a step that comes twice.
                self._tracked.note_told(record)
                self._client.log_batch(id, metrics=points)


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Settings as `schedule.peak` and text."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", str(value)[:LONGEST_PARAMETER]
