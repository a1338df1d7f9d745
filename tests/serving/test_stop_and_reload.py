"""A server that stops finishes what it has begun; a new model takes over without a request being dropped."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import checkpoint_directories
from tandem.training.checkpoints.checkpoint import Checkpoint, read
from tandem.training.loop import train
from tandem.training.run_directory import Run
from tests.conftest import TINY
from tests.serving.servers import RunningServer, export_checkpoint, running

pytestmark = pytest.mark.slow

GOOD = {"q": "I see a dog.", "source": "en", "target": "de"}
LONG = {**GOOD, "q": "The old man reads a book because it is good. " * 300}
# Batches begun: unlike the length of the queue, it cannot be missed between two looks.
BATCHES = "tandem_batch_sentences_count"


@pytest.fixture(scope="module")
def changing_run(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that learns so fast that each of its checkpoints says something else."""
    directory = tmp_path_factory.mktemp("changing") / "run"
    settings = ("model.max_length=64", "schedule.peak=0.003", "schedule.warmup_steps=4")
    train(Config.load("demo", [*TINY, *settings]), tiny_corpus.directory, directory, [])
    return Run.open(directory)


class Background(threading.Thread):
    """A request whose answer is awaited elsewhere."""

    def __init__(self, server: RunningServer, body: dict[str, Any]) -> None:
        super().__init__()
        self._server, self._body = server, body
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with self._server.client() as client:
            self.answer = client.post("/translate", json=self._body)


def checkpoints(run: Run) -> list[Checkpoint]:
    return [read(directory) for directory in checkpoint_directories(run.checkpoints).values()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_what_has_begun(trained_run: Run, tmp_path: Path, number: signal.Signals) -> None:
    with running([trained_run.directory], tmp_path / "log") as server:
        request = Background(server, LONG)
        server.wait_for(BATCHES, 1)
        server.signal(number)
        request.join()
        assert request.answer is not None
        assert request.answer.status_code == 200
        assert len(request.answer.json()["translatedText"]) > 300
        assert server.end() == 0
        with pytest.raises(httpx.ConnectError), server.client() as client:
            client.get("/health")
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_stop_does_not_wait_for_ever(trained_run: Run, tmp_path: Path) -> None:
    body = {**GOOD, "q": LONG["q"] * 6}
    with running([trained_run.directory], tmp_path / "log", stop_seconds=0.01) as server:
        request = Background(server, body)
        server.wait_for(BATCHES, 1)
        server.signal(signal.SIGTERM)
        request.join()
        assert request.answer is not None
        assert request.answer.status_code == 503
        assert request.answer.json()["error"] == "the server is stopping; try again later"
        assert server.end() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_stop_after_a_client_has_gone_leaves_no_trace(trained_run: Run, tmp_path: Path) -> None:
    with running([trained_run.directory], tmp_path / "log") as server:
        with server.client() as client, client.stream("POST", "/translate/stream", json=LONG) as stream:
            next(stream.iter_lines())
        server.signal(signal.SIGTERM)
        assert server.end() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_new_checkpoint_takes_over_without_a_dropped_request(changing_run: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(changing_run.directory, run, ignore=shutil.ignore_patterns("best", "checkpoints"))
    older, newer = checkpoints(changing_run)[-2:]
    shutil.copytree(older.directory, run / "checkpoints" / older.directory.name)
    with running([run], tmp_path / "log", watch_seconds=0.1) as server, server.client() as client:
        before = server.translate(GOOD["q"])
        assert server.metric("tandem_model_step") == older.step
        shutil.copytree(newer.directory, run / "checkpoints" / ".copied")
        (run / "checkpoints" / ".copied").rename(run / "checkpoints" / newer.directory.name)

        def is_answered_by_the_newer() -> bool:
            assert client.post("/translate", json=GOOD).status_code == 200
            return server.metric("tandem_model_step") == newer.step

        server.wait_until(is_answered_by_the_newer)
        assert server.translate(GOOD["q"]) != before
        assert server.metric("tandem_reloads_total") == 1
    assert f"with step {newer.step}" in (tmp_path / "log").read_text()


def test_a_folder_is_exchanged_at_sighup_while_a_request_is_worked_on(changing_run: Run, tmp_path: Path) -> None:
    folder, (older, newer) = tmp_path / "exported", checkpoints(changing_run)[-2:]
    export_checkpoint(changing_run, older, folder)
    with running([folder], tmp_path / "log", watch_seconds=3600.0) as server:
        before = server.translate(GOOD["q"])
        whole = server.translate(LONG["q"])
        done = server.metric(BATCHES)
        request = Background(server, LONG)
        server.wait_for(BATCHES, done + 1)
        export_checkpoint(changing_run, newer, folder)
        server.signal(signal.SIGHUP)
        server.wait_for("tandem_model_step", newer.step, newer.step)
        request.join()
        assert request.answer is not None
        assert request.answer.json() == whole
        assert server.translate(GOOD["q"]) != before


@pytest.mark.parametrize("fault", ["damaged file", "no facts", "other languages"])
def test_a_broken_new_model_is_refused_and_the_old_one_stays(changing_run: Run, tmp_path: Path, fault: str) -> None:
    folder, (older, newer) = tmp_path / "exported", checkpoints(changing_run)[-2:]
    export_checkpoint(changing_run, older, folder)
    with running([folder], tmp_path / "log", watch_seconds=0.1) as server:
        before = server.translate(GOOD["q"])
        if fault == "damaged file":
            (folder / "model.bin").write_bytes((folder / "model.bin").read_bytes()[:-100])
            (folder / "tandem.json").write_bytes((folder / "tandem.json").read_bytes() + b"\n")
        elif fault == "no facts":
            (folder / "tandem.json").unlink()
        else:
            export_checkpoint(changing_run, newer, folder, ("de", "en"))
        server.wait_for("tandem_reloads_total", 1)
        assert server.translate(GOOD["q"]) == before
        assert server.metric("tandem_model_step") == older.step
        assert "still translating en to de with step" in (tmp_path / "log").read_text()
        export_checkpoint(changing_run, newer, folder)
        server.wait_for("tandem_model_step", newer.step, newer.step)
        assert server.translate(GOOD["q"]) != before


def test_several_pairs_in_one_server(trained_run: Run, tmp_path: Path) -> None:
    back, french = tmp_path / "back", tmp_path / "french"
    export_checkpoint(trained_run, checkpoints(trained_run)[-1], back, ("de", "en"))
    export_checkpoint(trained_run, checkpoints(trained_run)[-1], french, ("fr", "de"))
    with running([trained_run.directory, back, french], tmp_path / "log") as server, server.client() as client:
        languages = {each["code"]: each["targets"] for each in client.get("/languages").json()}
        assert languages == {"en": ["de"], "de": ["en"], "fr": ["de"]}
        texts = ["The dog sleeps in the garden of the house.", "Le chien dort dans le jardin de la maison."]
        answer = server.translate(texts, source="auto")
        assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "fr"]
        assert client.post("/translate", json={"q": "Hund", "source": "de", "target": "en"}).status_code == 200
        wrong = client.post("/translate", json={"q": "chien", "source": "fr", "target": "en"})
        assert wrong.status_code == 400
        assert wrong.json()["error"].startswith("source: fr to en is not supported")
        detected = client.post("/detect", json={"q": "Der Hund schläft im Garten des Hauses."}).json()
        assert detected[0]["language"] == "de"
