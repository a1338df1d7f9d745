"""A log format from outside of the package: a module and an entry point, as docs/extending.md shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extending_examples import write_examples
from tests.places import REPOSITORY

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory as `pip install` leaves one behind."""
    about = tmp_path / "site" / "nematode_log-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: nematode-log\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tandem.formats]\nnematode = nematode_log:FORMAT\n")
    write_examples(about.parent)
    return about.parent


def report(path: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tandem", "report", str(path), "--json"],
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{site}"},
        capture_output=True,
        text=True,
    )


def test_a_format_of_another_package(tmp_path: Path, site: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"nematode {step}: loss {9 - step / 10}\n" for step in range(1, 30)))
    read = json.loads(report(log, site).stdout)
    evidence = {answer["id"]: answer["evidence"] for answer in read["questions"]}
    assert read["source"] == "Nematode log"
    assert evidence["trained"]["last_step"] == 29
    assert evidence["trained"]["last_train_loss"] == pytest.approx(6.1)
    log.write_text("no log at all\n")
    assert "reads a Tandem run, a Nematode log, TensorBoard" in report(log, site).stderr.replace("\n", " ")


BROKEN = {
    "import absent": "this log format cannot be imported (No module named 'absent')",
    "FORMAT = object()": "a object, not a log format (it has no read)",
    "from pathlib import Path\nFORMAT = Path": "not a log format (it has no read)",
    "FORMAT = open(__file__)": "a TextIOWrapper, not a LogFormat",
    "from tandem.reporting.formats.log_format import LogFormat\n"
    "FORMAT = LogFormat(title='t', read=print, lines={'a': '('})": "missing ), unterminated subpattern",
}


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_format_is_left_out_and_named_and_others_are_read(tmp_path: Path, site: Path, content: str) -> None:
    (site / "nematode_log.py").write_text(content)
    table = tmp_path / "table.csv"
    table.write_text("step,loss\n" + "".join(f"{step},{9 - step / 10}\n" for step in range(1, 30)))
    (problem,) = json.loads(report(table, site).stdout)["problems"]
    assert problem.startswith("the log format nematode of the package nematode-log was left out (nematode_log:FORMAT: ")
    assert BROKEN[content] in problem
    table.write_text("no log at all\n")
    ended = report(table, site)
    assert ended.returncode == 2
    assert "the log format nematode of the package nematode-log was left out" in " ".join(ended.stderr.split())
