"""A run that has learnt a few sentences by heart: small, trained in seconds, and sure of its translations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.config import Config, CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tandem.training.loop import train

# Sure of itself, because it is tested on what it has seen: a search then finds the same as any other.
SETTINGS = (
    *("model.d_model=64", "model.heads=2", "model.d_ff=128"),
    *("batch.tokens=512", "batch.micro_batches=1", "train.precision=float32", "train.max_steps=500"),
    *("schedule.peak=3e-3", "schedule.warmup_steps=20", "evaluation.every_steps=1000"),
)
KNOWN = 200


@pytest.fixture(scope="session")
def sure_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose dev set is the beginning of its training text; its corpus lies beside it."""
    place = tmp_path_factory.mktemp("sure")
    write_demo_text(place / "text", pairs=240)
    files = {split: (place / "text" / f"{split}.en", place / "text" / f"{split}.de") for split in ("train", "dev")}
    for train_file, dev_file in zip(files["train"], files["dev"], strict=True):
        lines = train_file.read_text(encoding="utf-8").splitlines(keepends=True)
        dev_file.write_text("".join(lines[:KNOWN]), encoding="utf-8")
    prepare(CorpusTexts([files["train"]], files["dev"]), place / "corpus", CorpusConfig(vocab_size=600))
    train(Config.load("demo", SETTINGS), place / "corpus", place / "run", [])
    return place / "run"


@pytest.fixture(scope="session")
def dev_lines(sure_run: Path) -> list[str]:
    """The first sentences of its dev set."""
    text = (sure_run.parent / "text" / "dev.en").read_text(encoding="utf-8")
    return text.splitlines()[:20]
