"""W&B offline and MLflow with a local store: what they hold of a killed and resumed run is what the journal holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import TRACKING_SERVICES, RunPaths
from tandem.monitor.journal_reader import read_record
from tandem.monitor.records import Progressed, Record, Started
from tandem.monitor.scalars import scalars_of
from testbed.wandb_files import read_sessions
from tests import warm
from tests.monitor.example_records import example
from tests.training.processes import TIMEOUT, read_until, train_command

pytest.importorskip("wandb", reason="wandb is not installed: pip install 'tandem-nmt[wandb]'")
mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'tandem-nmt[mlflow]'")
pytestmark = pytest.mark.slow

CANARY = "canary5c1d0e" + "0" * 28
LAST_STEP = 24
SETTINGS = ("monitor.views=[wandb,mlflow]", f"train.max_steps={LAST_STEP}", "train.on_preemption_notice=sleep inf")
Values = dict[int, dict[str, list[float]]]
"""By step and tag, in the order in which they were told."""


@dataclass
class Tracked:
    """A run that was killed and went on, with both views."""

    run: Path
    store: str
    printed: str
    noted: dict[str, int]
    """The last step that each service was told of before the kill."""

    @property
    def sessions(self) -> list[list[Record]]:
        """The journal's records from each start on."""
        sessions: list[list[Record]] = []
        for line in (self.run / "journal/rank-0.jsonl").read_bytes().splitlines():
            if (record := read_record(line)) is not None:
                if isinstance(record, Started):
                    sessions.append([])
                sessions[-1].append(record)
        return sessions

    @property
    def recorded(self) -> Values:
        values: Values = defaultdict(lambda: defaultdict(list))
        for record in chain(*self.sessions):
            for tag, value in scalars_of(record).items():
                values[record.step][tag].append(value)
        return values

    def check(self, told: Values, service: str) -> None:
        """Every value is one that the journal has of the step, each step has one, and none that was due is missing."""
        recorded = self.recorded
        for step, tags in told.items():
            for tag, values in tags.items():
                assert len(values) == 1, (step, tag)
                assert values[0] in recorded[step][tag], (step, tag)
        # A kill takes what is under way; what comes after the last step that was noted as told is told by the next
        # session, to its end.
        _, resumed = self.sessions
        noted = self.noted[service]
        due = [record for record in resumed if scalars_of(record) and record.step > noted]
        assert due
        for record in due:
            assert set(scalars_of(record)) <= set(told.get(record.step, {})), record.step


def last_noted(file: Path) -> int:
    """The last step that a service was told of, by a run's file; -1 if the kill came before there was one."""
    return max(json.loads(file.read_text(encoding="utf-8"))["told"].values(), default=-1) if file.exists() else -1


@pytest.fixture(scope="module")
def tracked(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    directory = tmp_path_factory.mktemp("tracked")
    run, store = directory / "a-run", f"file:{directory / 'mlruns'}"
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "WANDB_API_KEY": CANARY,
        "MLFLOW_TRACKING_URI": store,
        "MLFLOW_TRACKING_TOKEN": CANARY,
        # Its makers would rather have a database, which the small library cannot write.
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    command = train_command(tiny_corpus, run, *SETTINGS)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as killed:
        read_until("step 14/", killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
    noted = {service: last_noted(RunPaths(run).told_file(service)) for service in TRACKING_SERVICES}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 0, ended.stderr
    return Tracked(run, store, ended.stdout + ended.stderr, noted)


def test_steps_were_taken_again(tracked: Tracked) -> None:
    assert any(len(values["train_loss"]) == 2 for values in tracked.recorded.values())


def test_wandb_has_what_the_journal_has(tracked: Tracked) -> None:
    told: Values = defaultdict(lambda: defaultdict(list))
    sessions = read_sessions(tracked.run)
    for row in (row for session in sessions for row in session.rows):
        for tag, value in row.items():
            if tag != "step" and not tag.startswith("_"):
                told[row["step"]][tag].append(value)
    tracked.check(told, "wandb")
    assert len(sessions) == 2
    assert len({session.run_id for session in sessions}) == 1
    assert sessions[-1].exit_code == 0
    assert sessions[-1].summary["ended"] == "finished"
    rows = [row["_step"] for row in sessions[-1].rows]
    assert rows == sorted(set(rows)), "W&B takes rows in order only"


def test_wandb_has_the_settings_but_no_command_of_the_user_s(tracked: Tracked) -> None:
    config = read_sessions(tracked.run)[0].config
    saved = Config.load_saved(tracked.run / "config.yaml").model_dump(mode="json")
    assert saved["train"].pop("on_preemption_notice") == "sleep inf"
    assert config["train"] == saved["train"]
    assert config["optimizer"] == saved["optimizer"]
    assert config["session"]["parameters"] > 0


def mlflow_runs(store: str) -> list[Any]:
    """All runs in the store, with the client that knows them."""
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("tandem")
    return [client, *client.search_runs([experiment.experiment_id])]


def test_mlflow_has_what_the_journal_has(tracked: Tracked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client, run = mlflow_runs(tracked.store)
    told: Values = defaultdict(lambda: defaultdict(list))
    for tag in run.data.metrics:
        for point in client.get_metric_history(run.info.run_id, tag):
            told[point.step][tag].append(point.value)
    tracked.check(told, "mlflow")
    assert run.info.run_name == "a-run"
    assert run.info.status == "FINISHED"
    assert run.data.tags["ended"] == "finished"
    assert run.data.params["train.max_steps"] == str(LAST_STEP)
    assert "train.on_preemption_notice" not in run.data.params


def test_nothing_that_is_written_or_printed_has_a_secret(tracked: Tracked) -> None:
    files = [path for path in tracked.run.parent.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert CANARY not in tracked.printed
    assert "note: the view" not in tracked.printed


# --- what goes wrong


def train(corpus: PreparedCorpus, run: Path, *settings: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept: Mapping[str, str] = {
        name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))
    }
    # A home without a key that somebody has logged in with.
    command = train_command(corpus, run, "train.max_steps=4", *settings)
    return warm.run(command, env={**kept, "HOME": str(run.parent), **variables}, timeout=TIMEOUT)


def notices(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("note: ")]


OFF = "and is switched off; the training goes on without it"


def test_without_key_or_address_one_line_says_what_to_do(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    done = train(tiny_corpus, tmp_path / "run", "monitor.views=[wandb,mlflow]")
    assert sorted(notices(done)) == [
        "note: the view mlflow failed (MLFLOW_TRACKING_URI is not set; give it the address of your MLflow server) "
        f"{OFF}",
        f"note: the view wandb failed (W&B has no key here: run `wandb login`, or set WANDB_MODE=offline) {OFF}",
    ]


def test_services_that_cannot_be_reached_hold_nothing_up(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    nobody = "127.0.0.1:9"
    done = train(
        tiny_corpus,
        tmp_path / "run",
        "monitor.views=[wandb,mlflow]",
        WANDB_BASE_URL=f"http://{nobody}",
        WANDB_API_KEY=CANARY,
        MLFLOW_TRACKING_URI=f"http://name:{CANARY}@{nobody}",
        MLFLOW_HTTP_REQUEST_MAX_RETRIES="1",
    )
    said = notices(done)
    assert any("MLflow takes no records now" in line and "http://***@127.0.0.1:9" in line for line in said)
    assert any("wandb" in line or "W&B" in line for line in said)
    assert "finished at step 4" in done.stdout
    assert CANARY not in done.stdout + done.stderr
    assert CANARY.encode() not in (tmp_path / "run/journal/rank-0.jsonl").read_bytes()


@pytest.mark.parametrize(("view", "library"), [("wandb", "W&B"), ("mlflow", "MLflow")])
def test_a_missing_library_is_named_with_the_remedy(
    tiny_corpus: PreparedCorpus, tmp_path: Path, view: str, library: str
) -> None:
    (tmp_path / view).mkdir()
    (tmp_path / view / "__init__.py").write_text("raise ImportError('not here')")
    command = train_command(tiny_corpus, tmp_path / "run", f"monitor.views=[{view}]")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.strip() == (
        f"tandem: {view}: {library}'s library is not installed; pip install 'tandem-nmt[{view}]'"
    )
    assert not (tmp_path / "run").exists(), "the next command may have other settings"


# --- a view by itself


def test_a_run_that_wandb_does_not_take_is_kept_to_be_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    from tandem.monitor import wandb_view

    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", CANARY)
    monkeypatch.setattr(wandb_view, "INIT_SECONDS", 1.0)
    view = wandb_view.WandbView(RunPaths(tmp_path), Config())
    trouble = view.pop_trouble()
    assert trouble.startswith("W&B cannot be used now (CommError: ")
    assert trouble.endswith(f"its records are kept, and `wandb sync {tmp_path}/wandb/offline-run-*` sends them")
    view.show(example(Progressed, step=10, train_loss=4.5, step_seconds=1.0, steps=1, seconds={}))
    view.close()
    wandb.teardown()
    (session,) = [session for session in read_sessions(tmp_path) if session.rows]
    assert [(row["step"], row["train_loss"]) for row in session.rows] == [(10, 4.5)]


def losses(store: str) -> list[dict[int, float]]:
    """The training loss by step, of each run in the store."""
    client, *runs = mlflow_runs(store)
    histories = [client.get_metric_history(run.info.run_id, "train_loss") for run in runs]
    return [{point.step: point.value for point in history} for history in histories]


def progressed(step: int) -> Progressed:
    return example(Progressed, step=step, train_loss=1 / step, step_seconds=1.0, steps=1, seconds={})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/store")
    return f"file:{tmp_path}/store"


def test_what_mlflow_does_not_take_comes_later(tmp_path: Path, store: str) -> None:
    from tandem.monitor.mlflow_view import MlflowView

    (tmp_path / "run").mkdir()
    view = MlflowView(RunPaths(tmp_path / "run"), Config())
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("in the way")
    troubles = []
    for step in (10, 20):
        view.show(progressed(step))
        troubles.append(view.pop_trouble())
    assert "MLflow takes no records now" in troubles[0]
    assert troubles[1] == ""
    (tmp_path / "store").unlink()
    (tmp_path / "away").rename(tmp_path / "store")
    view.show(progressed(30))
    assert view.pop_trouble() == "MLflow takes records again"
    assert losses(store) == [{step: 1 / step for step in (10, 20, 30)}]


def test_what_mlflow_has_not_taken_at_the_end_is_told(tmp_path: Path, store: str) -> None:
    from tandem.monitor.mlflow_view import MlflowView

    (tmp_path / "run").mkdir()
    view = MlflowView(RunPaths(tmp_path / "run"), Config())
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("in the way")
    for step in (10, 20):
        view.show(progressed(step))
    view.pop_trouble()
    view.close()
    assert view.pop_trouble() == "MLflow has not taken 2 records of this session, which are missing there"


def test_a_run_that_mlflow_has_lost_begins_again_and_settings_may_change(tmp_path: Path, store: str) -> None:
    from tandem.monitor.mlflow_view import MlflowView

    def session(*records: Record, rate: float = 1.0) -> None:
        view = MlflowView(RunPaths(tmp_path), Config().with_settings("schedule", scale=rate))
        for record in records:
            view.show(record)
        view.close()

    session(progressed(10))
    session(progressed(10), progressed(20), rate=3.0)
    assert losses(store) == [{10: 0.1, 20: 0.05}]
    client, run = mlflow_runs(store)
    assert run.data.params["schedule.scale"] == "1.0"
    assert run.data.tags["changed_settings"] == "schedule.scale: 1.0 -> 3.0"
    client.delete_run(run.info.run_id)
    session(progressed(30))
    assert losses(store) == [{30: 1 / 30}]
