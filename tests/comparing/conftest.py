"""Runs to compare: two that differ by their seed alone, and one of another recipe, all on the same corpus."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests import warm
from tests.conftest import TINY


class Runs(NamedTuple):
    """Directories of trained runs."""

    first_seed: Path
    second_seed: Path
    other: Path


@pytest.fixture(scope="session")
def runs(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    directory = tmp_path_factory.mktemp("compared")
    found = Runs(directory / "narrow-1", directory / "narrow-2", directory / "wide")
    for run, settings in zip(found, (("train.seed=1",), ("train.seed=2",), ("model.d_model=64",)), strict=True):
        command = ["train", "demo", *TINY, *settings, "--corpus", str(tiny_corpus.directory), "--run", str(run)]
        warm.run([sys.executable, "-m", "tandem", *command], check=True)
    return found
