"""Processes that are compared in speed: they work only when it is their turn, and are counted and ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testbed.taking_turns import Contender, contest, take_turns

pytestmark = pytest.mark.slow
# Appends a line for every piece of work; every other line tells of something else.
WORKING = """
import sys, time
with open(sys.argv[1], "w", buffering=1) as log:
    while True:
        log.write("3\\nnothing\\n")
        time.sleep(0.001)
"""
ENDING = """
import os, signal, sys
with open(sys.argv[1], "w") as log:
    log.write("3\\n")
os.kill(os.getpid(), signal.SIGSTOP)
"""
# Memory that was given back, held once by the process itself and once by a child of it, which then waits.
ALLOCATED = 200_000_000
ALLOCATING = f"""
import os, sys, time
if child := os.fork():
    held = bytearray({ALLOCATED})
    del held
    os.waitpid(child, 0)
held = bytearray({ALLOCATED})
del held
with open(sys.argv[1], "w") as log:
    log.write("1\\n")
time.sleep(600)
"""


def contender(name: str, program: str, directory: Path) -> Contender:
    log = directory / f"{name}.log"
    process = subprocess.Popen([sys.executable, "-c", program, str(log)])
    return Contender(name, process, log, lambda line: int(line) if line.isdigit() else 0)


def state(process: subprocess.Popen[bytes]) -> str:
    return str(psutil.Process(process.pid).status())


def test_each_is_stopped_when_it_is_not_its_turn_and_what_it_does_is_counted(tmp_path: Path) -> None:
    with contest() as contenders:
        for name in ("one", "other"):
            contenders.append(contender(name, WORKING, tmp_path))
            contenders[-1].warm_up(2)
        take_turns(contenders, turns=2, seconds=1.0)
        assert [state(each.process) for each in contenders] == [psutil.STATUS_STOPPED] * 2
        for each in contenders:
            each.done()
            assert len(each.speeds) == 2
            assert each.speed > 0
            assert set(each.pieces) == {3}
            assert len(each.pieces) == each.log.read_bytes().count(b"3\n")
    assert all(each.process.returncode is not None for each in contenders)


def test_pieces_of_a_timed_turn_have_the_second_in_which_they_were_seen(tmp_path: Path) -> None:
    with contest() as contenders:
        contenders.append(contender("timed", WORKING, tmp_path))
        contenders[0].warm_up(2)
        before = len(contenders[0].pieces)
        ran, seen = contenders[0].run_timed(1.0)
        assert state(contenders[0].process) == psutil.STATUS_STOPPED
        assert [work for _, work in seen] == contenders[0].pieces[before:]
        times = [after for after, _ in seen]
        assert times == sorted(times)
        assert 0.0 <= times[0] < times[-1] <= ran


def test_one_may_end_in_a_timed_turn_if_it_ends_well(tmp_path: Path) -> None:
    with contest() as contenders:
        for name, program in (("finished", ENDING), ("failed", f"{ENDING}\nsys.exit(1)")):
            contenders.append(contender(name, program, tmp_path))
            contenders[-1].warm_up(1)
        ran, seen = contenders[0].run_timed(60.0)
        assert ran < 60.0
        assert seen == []
        with pytest.raises(SystemExit, match="failed ended by itself"):
            contenders[1].run_timed(60.0)


def test_peak_memory_is_that_of_the_process_and_its_children(tmp_path: Path) -> None:
    with contest() as contenders:
        contenders.append(contender("large", ALLOCATING, tmp_path))
        contenders[0].warm_up(1)
        assert contenders[0].peak_memory() >= 2 * ALLOCATED
        for child in psutil.Process(contenders[0].process.pid).children():
            child.kill()


def test_one_that_ends_before_its_turn_is_named(tmp_path: Path) -> None:
    with contest() as contenders:
        contenders.append(contender("fleeting", "", tmp_path))
        with pytest.raises(SystemExit, match="fleeting ended by itself"):
            contenders[0].warm_up(1)


def test_one_that_ends_in_its_turn_is_named(tmp_path: Path) -> None:
    with contest() as contenders:
        contenders.append(contender("exhausted", ENDING, tmp_path))
        contenders[0].warm_up(1)
        with pytest.raises(SystemExit, match="exhausted ended by itself"):
            contenders[0].run(2.0)
