"""Two processes with a card each, and the command line of the rehearsal."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal import build
from tests.rehearsal import children

pytestmark = pytest.mark.slow


def test_two_processes_and_a_lost_peer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [children.start("rank", str(rank), port) for rank in range(2)]
    told = [rank.communicate(timeout=120) for rank in ranks]
    assert told[0][0].strip() == "done", told[0][1] + told[1][1]


def test_module_on_the_device_is_counted_even_if_it_leaves_by_exit(tmp_path: Path) -> None:
    module, counts = tmp_path / "leaving.py", tmp_path / "counts.json"
    module.write_text("import os, sys, torch\ntorch.ones(2, device='cuda').sum().item()\nos._exit(int(sys.argv[1]))\n")
    command = [sys.executable, "-m", "rehearsal", "--counts", str(counts), "--module", "leaving", "--", "3"]
    environment = {"PYTHONPATH": f"{tmp_path}:{children.REPOSITORY}"}
    assert subprocess.run(command, env=environment, cwd=children.REPOSITORY, check=False).returncode == 3
    assert json.loads(counts.read_text())["totals"]["synchronisations"] == 1


def test_no_compiler_is_one_plain_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    build.library_path.cache_clear()
    reason = build.available()
    assert reason == "The rehearsal device needs a C++ compiler and found none of: no-such-compiler."
