"""Where the repository lies, and the corpora and runs beside it that not every checkout has."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
CORPORA = REPOSITORY.parent / "shared" / "corpora"
RUNS = REPOSITORY.parent / "shared" / "runs"
