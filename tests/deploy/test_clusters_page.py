"""The commands of docs/clusters.md, typed on two hosts: everything behind a prompt, in order."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from testbed.console_page import read_console
from testbed.network_rig import CARD, Rig, mpirun_unavailable, unavailable
from tests.places import REPOSITORY

pytestmark = pytest.mark.long

# Of one command, on a busy machine.
TIMEOUT = 900


def commands() -> list[tuple[str, list[str]]]:
    """Each command with the hosts it is typed on; the same one typed on several in a row runs on them at once."""
    page = read_console(REPOSITORY / "docs" / "clusters.md")
    return [(command, [typed.host for typed in group]) for command, group in groupby(page, key=lambda it: it.command)]


@pytest.fixture
def typed_on(tmp_path: Path, demo_text: Path) -> Iterator[tuple[Rig, dict[str, str]]]:
    """Two hosts, and an environment with Tandem's commands and an ssh that knows the hosts' keys."""
    if reason := unavailable() or mpirun_unavailable():
        pytest.skip(reason)
    programs = tmp_path / "bin"
    programs.mkdir()
    with Rig() as rig:
        python = f"env PYTHONPATH={REPOSITORY} {sys.executable} -m"
        ssh = f"{shutil.which('ssh')} -F {rig.serve_ssh().config}"
        places = {"tandem": f"{python} tandem", "torchrun": f"{python} torch.distributed.run", "ssh": ssh}
        for name, command in places.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        for file in demo_text.iterdir():
            shutil.copy(file, tmp_path)
        # What mpirun wants where root types it, on a machine that has more network cards than the host.
        settings = {"oob_tcp_if_include": CARD, "btl_tcp_if_include": CARD, "orte_tmpdir_base": str(tmp_path)}
        environment = {f"OMPI_MCA_{name}": value for name, value in settings.items()}
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
        yield rig, environment


def test_every_command_of_the_page_works(typed_on: tuple[Rig, dict[str, str]], tmp_path: Path) -> None:
    rig, environment = typed_on
    hosts = {host.name: host for host in rig.hosts}
    assert len(commands()) >= 5
    for command, names in commands():
        line = ["sh", "-c", f"cd {shlex.quote(str(tmp_path))} && {command}"]
        started = [
            rig.run(hosts[name], line, environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for name in names
        ]
        for process in started:
            said, _ = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, f"{command}\n{said}"
    for name in ("toy", "mpirun", "torchrun"):
        assert sorted(path.name for path in (tmp_path / "runs" / name / "journal").iterdir()) == [
            "rank-0.jsonl",
            "rank-1.jsonl",
        ]
