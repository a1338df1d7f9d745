"""A tiny trained run, and a server of it that many tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.serving.served_models import ServedModel
from tandem.training.loop import train
from tandem.training.run_directory import Run
from tests.conftest import TINY
from tests.serving.servers import RunningServer, running


@pytest.fixture(scope="session")
def trained_run(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a few steps, whose translations are nothing to look at."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    config = Config.load("demo", [*TINY, "model.max_length=64"])
    train(config, tiny_corpus.directory, directory, [])
    return Run.open(directory)


@pytest.fixture(scope="session")
def model(trained_run: Run) -> ServedModel:
    """The run's model in this process."""
    return ServedModel.load(trained_run.directory, 1)


@pytest.fixture(scope="module")
def server(trained_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the run that does not end while the tests of a file run."""
    log: Path = tmp_path_factory.mktemp("server") / "log"
    with running([trained_run.directory], log) as started:
        yield started
        assert started.process.poll() is None, log.read_text()
