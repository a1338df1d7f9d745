"""The import API: the notebook of docs/python.md as it stands, lazy imports, and nothing offered that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tandem
from tests.places import REPOSITORY


def run_python(code: str, directory: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.long
def test_the_notebook_of_the_docs(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/python.md").read_text(encoding="utf-8")
    (notebook,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    said = run_python(notebook, tmp_path)
    assert "2000 pairs, 1000 pieces" in said
    assert "finished 60 " in said
    assert "Is it fully trained, and how can you tell?" in said
    assert (tmp_path / "run/report.html").is_file()


def test_all_that_is_offered_is_there() -> None:
    for name in tandem.__all__:
        assert getattr(tandem, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'translate'"):
        _ = tandem.translate


def test_an_import_loads_nothing(tmp_path: Path) -> None:
    said = run_python(
        "import sys, tandem; print([name for name in sys.modules if name.startswith('tandem')])", tmp_path
    )
    assert said.strip() == "['tandem']"
    heavy = "print([name for name in ('torch', 'plotly', 'pyarrow') if name in sys.modules])"
    said = run_python(f"import sys, tandem; tandem.Config.load('small'); {heavy}", tmp_path)
    assert said.strip() == "[]"
