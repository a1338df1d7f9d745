"""Stages: calls in other processes, in order, with their errors and progress, and never longer than the parent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.stage_runner import StageRunner, available_cores, stage_runner
from tandem.corpus.progress import no_progress

pytestmark = pytest.mark.slow


def square(number: int) -> int:
    return number * number


def fail(number: int) -> None:
    raise OSError(28, "No space left on device", f"file-{number}")


def end(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def log(tmp_path: Path) -> ResumeLog:
    return ResumeLog(tmp_path, {})


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_come_in_the_order_of_the_calls(jobs: int, log: ResumeLog) -> None:
    with stage_runner(jobs, log, no_progress) as stages:
        calls = [partial(square, number) for number in range(50)]
        assert list(stages.run("square", calls)) == [number * number for number in range(50)]
        assert list(stages.run("nothing", [])) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_come_back_as_they_are(jobs: int, log: ResumeLog) -> None:
    with stage_runner(jobs, log, no_progress) as stages, pytest.raises(OSError, match="No space left") as caught:
        list(stages.run("fail", [partial(fail, 7)]))
    assert (caught.value.errno, caught.value.filename) == (28, "file-7")


def test_a_killed_worker_is_told(log: ResumeLog) -> None:
    with (
        stage_runner(2, log, no_progress) as stages,
        pytest.raises(ChildProcessError, match=r"was ended; .*fewer --jobs"),
    ):
        list(stages.run("end", [partial(end, number) for number in range(4)]))


def test_progress_moves_by_the_size_of_a_call_once_its_result_is_dealt_with(log: ResumeLog) -> None:
    heard: list[tuple[object, ...]] = []
    stages = StageRunner(log, lambda *report: heard.append(report))
    for number in stages.run("square", [partial(square, 2), partial(square, 3)], [10, 20], unit="lines", done=5):
        heard.append((number,))
    reports = [("square", done, 35, "lines") for done in (5, 15, 35)]
    assert heard == [reports[0], (4,), reports[1], (9,), reports[2]]


def test_there_is_a_core() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


PROGRAM = """
import os, sys, time
from functools import partial
from pathlib import Path
from tandem.corpus.prepare.resume_log import ResumeLog
from tandem.corpus.prepare.stage_runner import stage_runner
from tandem.corpus.progress import no_progress

def wait(number):
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    with stage_runner(2, ResumeLog(Path(sys.argv[1]), {}), no_progress) as stages:
        list(stages.run("wait", [partial(wait, 1), partial(wait, 2)]))
"""


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script, staged = tmp_path / "program.py", tmp_path / "staged"
    script.write_text(PROGRAM)
    staged.mkdir()
    with subprocess.Popen([sys.executable, str(script), str(staged)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ended = select.poll()
        for _ in range(2):
            ended.register(os.pidfd_open(int(process.stdout.readline())), select.POLLIN)
        process.kill()
    waiting = 2
    while waiting:
        events = ended.poll(60_000)
        assert events, "a worker lives on"
        for descriptor, _ in events:
            ended.unregister(descriptor)
            os.close(descriptor)
            waiting -= 1
