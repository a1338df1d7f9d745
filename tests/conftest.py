"""What all tests share: one thread a process, and a tiny prepared corpus of demo sentences."""

from __future__ import annotations

import os

# Before torch is imported: tiny models are faster on one thread, and test processes run side by side.
os.environ["OMP_NUM_THREADS"] = "1"

import fcntl
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from tandem.config import Config, CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tests import warm

# Neither a busy machine nor chance may fail a test: time is measured in bench/.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Fixtures that train a model, which takes longer than any test of the quick ring may.
TRAINS = {"trained", "fluent"}

# Small enough for dozens of steps a second, large enough to have two of everything that can be two.
TINY = (
    "model.d_model=32",
    "model.heads=2",
    "model.d_ff=64",
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "model.activation_dropout=0.1",
    "batch.tokens=256",
    "batch.micro_batches=4",
    "train.precision=bfloat16",
    "train.max_steps=12",
    "train.log_every=2",
    "search.beam=2",
    "evaluation.every_steps=6",
    "checkpoint.every_steps=4",
)


SPLITS = ("train", "dev", "test")

# One test of several minutes, which would run alone at the end.
BEGINS_FIRST = "test_readme.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if TRAINS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    # Files with slow tests come first: what is left at the end are short ones, which share out evenly.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != BEGINS_FIRST, item.path not in slow))


@pytest.fixture(autouse=True)
def sigterm_is_heard_again() -> Iterator[None]:
    """What ends several processes together ignores SIGTERM from then on, and so would all that this process starts."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def demo_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with train, dev and test text of the demo grammar, cut to a few sentences."""
    directory = tmp_path_factory.mktemp("text")
    write_demo_text(directory, pairs=400)
    for path in [*directory.glob("dev.*"), *directory.glob("test.*")]:
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def tiny_corpus(demo_text: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """The demo text, prepared."""
    files = {split: (demo_text / f"{split}.en", demo_text / f"{split}.de") for split in ("train", "dev", "test")}
    out = tmp_path_factory.mktemp("prepared") / "corpus"
    return prepare(CorpusTexts([files["train"]], files["dev"], files["test"]), out, CorpusConfig(vocab_size=600))


@pytest.fixture
def tiny_config() -> Callable[..., Config]:
    """A config of a tiny model; takes overrides."""

    def make(*overrides: str) -> Config:
        return Config.load("demo", [*TINY, *overrides])

    return make


# Enough steps to end sentences where they end, if not to translate them well: a model that only stutters has ties.
FLUENT = (
    "model.d_model=64",
    "model.heads=2",
    "model.d_ff=128",
    "model.dropout=0.0",
    "batch.tokens=1024",
    "batch.micro_batches=1",
    "schedule.peak=0.006",
    "schedule.warmup_steps=40",
    "train.precision=float32",
    "train.max_steps=150",
)


@pytest.fixture(scope="session")
def fluent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose model says whole sentences; its corpus lies beside it."""

    def make(directory: Path) -> None:
        write_demo_text(directory, pairs=2000)
        train, dev, test = ((directory / f"{split}.en", directory / f"{split}.de") for split in SPLITS)
        prepare(CorpusTexts([train], dev, test), directory / "corpus", CorpusConfig(vocab_size=600))
        _train(directory / "run", directory / "corpus", FLUENT)

    return made_once("fluent", make, tmp_path_factory) / "run"


def made_once(name: str, make: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is filled by the first who asks for it; tests in several processes share it, and only read."""
    base = tmp_path_factory.getbasetemp()
    # Processes of pytest-xdist have directories of their own, in one of the session.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, made = shared / f"once-{name}", shared / f"once-{name}.made"
    with (shared / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            # An attempt that failed is made anew.
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            make(directory)
            made.touch()
    return directory


@pytest.fixture(scope="session")
def trained(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has taken a few steps with a tiny model."""
    run = tmp_path_factory.mktemp("trained") / "run"
    _train(run, tiny_corpus.directory, TINY)
    return run


def _train(run: Path, corpus: Path, settings: Sequence[str]) -> None:
    """Train in a process of its own, as users do."""
    command = ["train", "demo", *settings, "--corpus", str(corpus), "--run", str(run)]
    warm.run([sys.executable, "-m", "tandem", *command], check=True)
