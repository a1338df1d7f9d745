"""The names of files on the disk, as the documentation lists them."""

from __future__ import annotations

from pathlib import Path

from tandem.layout import RunPaths
from tests.places import REPOSITORY


def test_the_documentation_lists_what_a_run_holds() -> None:
    run = RunPaths(Path("RUN"))
    held = {path.name for path in (*vars(run).values(), *run.small_files()) if not path.name.startswith(".")}
    (_, listed, *_) = (REPOSITORY / "docs/checkpoints.md").read_text(encoding="utf-8").split("```")
    assert not {name for name in held if name not in listed}
