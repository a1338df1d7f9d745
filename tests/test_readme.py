"""The README's commands, executed in order in an empty directory, as a newcomer would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.console_page import Typed, read_console, skeleton
from tests.newcomer import make_checkout
from tests.places import REPOSITORY

# Would run this very test; CI runs it all the same.
LEFT_OUT = ("make test",)
# Runs until it is stopped; the commands after it talk to it.
SERVER = "tandem serve exported/en-de"
# Prints the same on every machine, so that the README must show it to the letter.
SAME_EVERYWHERE = ("tandem corpora", "tandem config show", "tandem doctor transformer-base --card", "tandem prepare")


def shown_after(page: Sequence[Typed], start: str) -> tuple[str, ...]:
    """What the README prints below the command that begins so."""
    return next(typed.shown for typed in page if typed.command.startswith(start))


@pytest.mark.slow
def test_the_readmes_commands_work_in_order_and_print_what_it_shows(tmp_path: Path) -> None:
    make_checkout(tmp_path)
    # Both cores, as a newcomer has them, and the environment's commands at hand.
    environment = os.environ | {"PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"}
    environment.pop("OMP_NUM_THREADS", None)
    # Other tests run beside this one: threads that wait for each other must not burn the processor meanwhile.
    environment["OMP_WAIT_POLICY"] = "PASSIVE"
    page = [typed for typed in read_console(REPOSITORY / "README.md") if typed.command not in LEFT_OUT]
    assert len(page) >= 8
    printed = {}
    with ExitStack() as servers:
        for command in (typed.command for typed in page):
            if command.startswith(SERVER):
                printed[command] = servers.enter_context(running(command, tmp_path, environment))
                continue
            ended = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
            )
            assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
            printed[command] = ended.stdout
    assert tuple(printed[SERVER].splitlines()) == shown_after(page, SERVER)
    demo = printed["make demo"]
    bleu = float(re.findall(r"test BLEU ([\d.]+)", demo)[-1])
    assert bleu >= 90
    # Apart from numbers, paths and the model's own words, what the README shows is what appears.
    for line in shown_after(page, "make demo"):
        if re.match(r"(step|saved|finished|nrefs|[\d.]+ M|[\d,]+ pairs|Now one)", line):
            assert skeleton(line) in {skeleton(real) for real in demo.splitlines()}, line
    for start in SAME_EVERYWHERE:
        real = next(text for command, text in printed.items() if command.startswith(start)).splitlines()
        assert [
            line for line in shown_after(page, start) if line != "..." and line.rstrip() not in map(str.rstrip, real)
        ] == []


@contextmanager
def running(command: str, directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """What a server prints until it listens; it is stopped at the end, and must end well."""
    process = subprocess.Popen(
        shlex.split(command), cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("listening"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()[1]
        yield "".join(lines)
        process.terminate()
        assert process.wait() == 0
    finally:
        process.kill()
        process.communicate()
