"""Work in other processes: in order, with its errors, and never longer than the one who gave it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.corpus.workers import available_cores, working


def square(number: int) -> int:
    return number * number


def fail(number: int) -> None:
    raise OSError(28, "No space left on device", f"file-{number}")


def end(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("jobs", [1, 3])
def test_answers_come_in_the_order_of_the_tasks(jobs: int) -> None:
    with working(jobs) as workers:
        assert list(workers.map(square, range(50))) == [number * number for number in range(50)]
        assert list(workers.map(square, [])) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_come_back_as_they_are(jobs: int) -> None:
    with working(jobs) as workers, pytest.raises(OSError, match="No space left") as caught:
        list(workers.map(fail, [7]))
    assert (caught.value.errno, caught.value.filename) == (28, "file-7")


def test_a_killed_worker_is_told() -> None:
    with working(2) as workers, pytest.raises(ChildProcessError, match=r"was ended; .*fewer --jobs"):
        list(workers.map(end, range(4)))


def test_there_is_a_core() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


PROGRAM = """
import os, time
from tandem.corpus.workers import working

def wait(number):
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    with working(2) as workers:
        list(workers.map(wait, range(2)))
"""


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
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
