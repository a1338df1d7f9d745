"""When a main thread hangs: in a long phase, at rest, and with no data on its way."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.cluster.liveness.pulse import MOVING_BYTES, RESTING_BEATS, TIMING, Pulse
from tandem.monitor.activity import ACTIVITY


def hangs_after(doing: Callable[[], object], phase: str = "checkpoint", apart: float = 10.0) -> bool:
    """Whether this process seems to hang in a phase that is too long, with something done between two beats."""
    with ACTIVITY.doing(phase):
        pulse, now = Pulse(TIMING, lambda: 0), ACTIVITY.stay.since + TIMING.hanging_checkpoint
        # Seconds from beat to beat by the clock that the pulse is given: next to ten, a test's work is rest.
        beats = []
        for number in range(1, 2 * RESTING_BEATS + 3):
            doing()
            beats.append(pulse.beat(now + apart * number))
    return beats[-1].hangs


def test_who_waits_in_vain_hangs() -> None:
    assert hangs_after(lambda: None)
    assert not hangs_after(lambda: None, phase="exchange")


def test_who_reads_a_slow_disk_does_not(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(10 * MOVING_BYTES))
    assert not hangs_after(file.read_bytes)


def test_who_waits_for_a_thread_that_computes_does_not() -> None:
    def compute() -> None:
        # All of it in the other thread: a digest of much data is found without the lock of the interpreter.
        thread = threading.Thread(target=lambda: hashlib.sha256(bytes(50_000_000)).digest())
        thread.start()
        thread.join()

    assert not hangs_after(compute, apart=0.1)


@pytest.mark.slow
def test_who_waits_for_a_program_that_fetches_does_not() -> None:
    data = bytes(10 * MOVING_BYTES)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        sends, receives = program.stdin, program.stdout

        def fetch() -> None:
            # By threads, so that it is only the program that counts, and not the pipes' ends here.
            sending = threading.Thread(target=lambda: (sends.write(data), sends.flush()))
            receiving = threading.Thread(target=lambda: receives.read(len(data)))
            for thread in (sending, receiving):
                thread.start()
            for thread in (sending, receiving):
                thread.join()

        assert not hangs_after(fetch)
        # The same program, when nothing comes any more.
        assert hangs_after(lambda: None)
