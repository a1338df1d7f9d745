"""Signals that ask a process to stop: real processes, whose main thread cleans up, or cannot come to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tandem.process_exit import stop_code
from tests.places import REPOSITORY

pytestmark = pytest.mark.slow

# A lock that is taken twice is waited for in C, with Python's own lock let go, and no signal ends that: like gloo.
STUCK = """
import ctypes, sys, threading
def wait_for_ever():
    lock, libc, gate = ctypes.create_string_buffer(64), ctypes.CDLL(None), threading.Lock()
    libc.pthread_mutex_lock(lock)
    gate.acquire()
    def tell():
        with gate:
            print("ready", flush=True)
    threading.Thread(target=tell, daemon=True).start()
    sys.setswitchinterval(1000)  # so that the thread runs only when this one has let go of Python's lock, in C
    gate.release()
    libc.pthread_mutex_lock(lock)
"""
LISTEN = "from tandem.process_signals import *\nlisten()\n"
# A signal to itself, at the moment that a test is about.
ASKED = "import os, signal, sys, time\nfrom tandem.cli import command_line\n"


@contextmanager
def started(code: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed that it is ready; it does not outlive the block."""
    command = [*before, sys.executable, "-c", code]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_process_that_waits_in_c_is_ended_in_one_sentence(number: signal.Signals) -> None:
    with started(f"{LISTEN}{STUCK}wait_for_ever()") as process:
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (stop_code(number), "", f"tandem: stopped by {number.name}\n")


def test_a_process_that_can_clean_up_does() -> None:
    code = (
        "import signal, sys, threading\n"
        f"{LISTEN}"
        "try:\n    print('ready', flush=True); threading.Event().wait()\n"
        "except KeyboardInterrupt:\n    print('cleaned up after', heard_signal().name); sys.exit(7)\n"
    )
    with started(code) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.communicate() == ("cleaned up after SIGUSR1\n", "")
    assert process.returncode == 7


def test_handlers_of_a_server_are_left_alone() -> None:
    code = (
        "import signal, threading\n"
        f"{LISTEN}"
        "loaded = threading.Event()\n"
        "signal.signal(signal.SIGHUP, lambda *_: (print('models loaded anew', flush=True), loaded.set()))\n"
        f"{STUCK}print('ready', flush=True)\nloaded.wait()\nwait_for_ever()"
    )
    with started(code) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "models loaded anew\n"
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert process.returncode == stop_code(signal.SIGTERM)


def test_a_signal_to_a_forked_process_is_not_its_parents() -> None:
    code = (
        "import os, signal\n"
        f"{LISTEN}"
        "child = os.fork()\n"
        "if not child:\n    signal.pause()\n"
        "os.kill(child, signal.SIGTERM)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{-signal.SIGTERM}\n", "")


def test_nohup_keeps_a_process_from_hearing_of_a_closed_terminal() -> None:
    with started(f"{LISTEN}{STUCK}wait_for_ever()", "nohup") as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert process.returncode == stop_code(signal.SIGTERM)


def test_process_1_of_a_container_hears_signals() -> None:
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    with started(f"{LISTEN}{STUCK}wait_for_ever()", "unshare", "--pid", "--fork") as unshare:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        unshare.wait()
    assert unshare.returncode == stop_code(signal.SIGTERM)


def test_a_plan_answers_and_is_over_with_its_block() -> None:
    code = (
        "import os, signal, threading\n"
        f"{LISTEN}"
        "wished = threading.Event()\n"
        "class Wish(SignalPlan):\n"
        "    def answer(self, number, wait):\n"
        "        print('wish:', number, flush=True); wished.set()\n"
        "        wait(1000)\n"
        "        print('never reached', flush=True)\n"
        "with answering(Wish()):\n"
        "    print('ready', flush=True)\n"
        "    while not wished.wait(0.01): pass\n"
        "print('over', flush=True)\n"
    )
    with started(code) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == (f"wish: {signal.SIGTERM.value}\nover\n", "")
    assert process.returncode == 0


HELD_BACK = """
import os, signal, threading
from pathlib import Path
from tandem.process_signals import *
def blocked():
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGTERM])
"""


def printed(code: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_signals_that_a_program_holds_back_are_heard_only_while_a_plan_lasts() -> None:
    code = f"{HELD_BACK}with answering(Interrupt()):\n    print(blocked())\nprint(blocked())\n"
    assert printed(code) == ["[]", f"[{signal.SIGTERM!r}]"]


def test_a_signal_that_was_held_back_interrupts_and_leaves_all_as_it_was() -> None:
    code = f"""{HELD_BACK}
os.kill(os.getpid(), signal.SIGTERM)
try:
    with answering(Interrupt()):
        print("never reached")
except KeyboardInterrupt:
    print(blocked(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    assert printed(code) == [f"[{signal.SIGTERM!r}] True"]


def test_the_listener_does_not_keep_signals_from_what_it_starts() -> None:
    code = f"""{HELD_BACK}
listen()
[thread] = [thread for thread in threading.enumerate() if thread.name == "signals"]
lines = Path(f"/proc/self/task/{{thread.native_id}}/status").read_text().splitlines()
print(*(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk")))
"""
    assert printed(code) == ["0"]


def test_a_command_is_stopped_while_it_still_imports(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(f"{STUCK}wait_for_ever()")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}
    command = [sys.executable, "-m", "tandem", "corpora"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == ("", "tandem: stopped by SIGTERM\n")
    assert process.returncode == stop_code(signal.SIGTERM)


# What typer's parser does with an interrupt, and what an import makes of one that it takes for a failure.
@pytest.mark.parametrize("answer", ["sys.exit(1)", "raise ImportError('no such module')"])
def test_an_interrupt_that_somebody_else_answers_has_the_signals_code(answer: str) -> None:
    code = f"""{LISTEN}{ASKED}
def main():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except KeyboardInterrupt:
        {answer}
command_line.main = main
command_line.program()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert (ended.returncode, ended.stderr) == (stop_code(signal.SIGTERM), "tandem: stopped by SIGTERM\n")


def test_a_signal_to_a_process_that_is_about_to_end_changes_nothing() -> None:
    code = f"""{LISTEN}{ASKED}
def end(code):
    os.kill(os.getpid(), signal.SIGTERM)
    end_process(code)
from tandem.process_exit import end_process
import torch
command_line.end_process = end
command_line.main = lambda: sys.exit(2)
command_line.program()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert (ended.returncode, ended.stderr) == (2, "")


def test_one_that_was_asked_to_stop_and_then_lost_another_has_the_signals_code() -> None:
    code = f"""{LISTEN}{ASKED}
from tandem.process_exit import LOST_PEER_CODE
command_line.listen().heard = signal.SIGTERM
command_line.main = lambda: sys.exit(LOST_PEER_CODE)
command_line.program()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert ended.returncode == stop_code(signal.SIGTERM)


def test_a_signal_while_pytorch_is_imported_ends_the_process_at_once(tmp_path: Path) -> None:
    """Its C code would swallow an interrupt or die of it: here a module that stands for it swallows it."""
    (tmp_path / "torch.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    pass\nprint('imported')\n"
    )
    code = f"""{LISTEN}{ASKED}
command_line.listen()
sys.path.insert(0, {str(tmp_path)!r})
import tandem.training.loop
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=50)
    assert (ended.returncode, ended.stdout) == (stop_code(signal.SIGTERM), "")
    assert ended.stderr == "tandem: stopped by SIGTERM\n"


def test_nor_does_it_matter_who_ends_it() -> None:
    """The thread of the heartbeats does, where the main thread does not come back."""
    code = f"""{LISTEN}{ASKED}
from tandem.cluster.liveness.liveness import PeerListener
command_line.listen().heard = signal.SIGTERM
PeerListener().lost("rank 0 on vm has ended", speaks=False)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert ended.returncode == stop_code(signal.SIGTERM)


def test_an_interrupt_inside_of_an_exec_has_the_signals_code(tmp_path: Path) -> None:
    """Python remembers it as one that nobody has caught, and a module's process ends by it."""
    code = f"""{LISTEN}{ASKED}
@command_line.stopped_by_signals
def command():
    exec("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)")
def main():
    try:
        command()
    except command_line.typer.Exit as end:
        sys.exit(end.exit_code)
command_line.main = main
command_line.program()
"""
    (tmp_path / "interrupted.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    command = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (stop_code(signal.SIGTERM), "tandem: stopped by SIGTERM\n")
