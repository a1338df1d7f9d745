"""The agent of a host by itself: orders arrive as they were given, and endings are told as what they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tandem.cluster.launch.remote_host import REPORT_MARK, STOP, HostJob
from tandem.process_exit import LOST_PEER_CODE, stop_code
from testbed.network_rig import Rig, Ssh
from tests.cluster.launch.test_ssh_launch import with_path

pytestmark = pytest.mark.slow

AGENT = ["-m", "tandem.cluster.launch.remote_host"]
# Every Python reads this file when it starts; the training processes go no further.
SAY_ARGUMENTS = """
import json, os, sys
if "RANK" in os.environ:
    print(json.dumps(sys.orig_argv), flush=True)
    os._exit(0)
"""
USE_MEMORY = """
import os
if "RANK" in os.environ:
    used = []
    while True:
        used.append(bytearray(10_000_000))
"""
# Rank 3 is stopped before it has begun; rank 4 sees that, and ends as one does that has waited for it in vain.
STOP_ITSELF = """
import os, signal, sys
if os.environ.get("RANK") == "3":
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    print("woken and asked" if signal.sigpending() else "woken", flush=True)
if os.environ.get("RANK") == "4":
    import psutil
    def is_stopped(process):
        try:
            return process.environ().get("RANK") == "3" and process.status() == psutil.STATUS_STOPPED
        except psutil.Error:
            return False
    while not any(map(is_stopped, psutil.Process(os.getppid()).children())):
        pass
    os._exit(75)
"""
# A control group that holds the agent, and its training process up to a point.
LIMIT_BYTES = 200_000_000


def job(
    arguments: list[str], environment: Mapping[str, str], count: int = 1, stop_seconds: float = 5
) -> dict[str, Any]:
    wanted = HostJob(
        first_rank=3,
        count=count,
        world_size=4,
        address="127.0.0.1",
        port=1,
        arguments=arguments,
        environment=dict(environment),
        stop_seconds=stop_seconds,
    )
    return {"run": asdict(wanted)}


def sitecustomize(directory: Path, text: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(text)
    return with_path(directory)


def worked(command: list[str], order: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What the processes of an agent printed, and its report; its launcher stays until then."""
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stderr is not None
        agent.stdin.write(json.dumps(order) + "\n")
        agent.stdin.flush()
        out = agent.stdout.read()
        said, mark, report = agent.stderr.read().partition(REPORT_MARK)
    assert mark, said
    return out, json.loads(report)


# Whatever a command line can hold: all but the character that ends it.
ANYTHING = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
NASTY = st.sampled_from(
    ["", " ", "'", '"', "\n", ";reboot", "$(id)", "`id`", "$HOME", "a\\\nb", "*", "--", "&", "é", "\x1e"]
)


# Looking for a smaller example would take a login each time.
@settings(max_examples=5, phases=[Phase.generate])
@given(arguments=st.lists(ANYTHING | NASTY, min_size=10, max_size=60))
def test_arguments_arrive_as_they_are(
    rig: Rig, rig_ssh: Ssh, tmp_path_factory: pytest.TempPathFactory, arguments: list[str]
) -> None:
    """Over a real ssh and the shell behind it."""
    environment = sitecustomize(tmp_path_factory.getbasetemp() / "say", SAY_ARGUMENTS)
    there = f"cd / && {sys.executable} {' '.join(AGENT)}"
    ssh = ["ip", "netns", "exec", rig.hosts[0].namespace, "ssh", "-F", str(rig_ssh.config), "vm2", there]
    out, report = worked(ssh, job(arguments, environment))
    assert report == {"code": 0, "killed": None}
    assert json.loads(out) == [sys.executable, "-m", "tandem", *arguments]


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group with little memory."""
    group = Path("/sys/fs/cgroup/memory") / f"tandem-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group with a limit of memory here: {error}")
    yield group
    group.rmdir()


def test_out_of_memory_is_told(memory_group: Path, tmp_path: Path) -> None:
    environment = sitecustomize(tmp_path / "use", USE_MEMORY)
    inside = ["sh", "-c", f'echo $$ > {memory_group}/cgroup.procs; exec "$@"', "sh", sys.executable, *AGENT]
    _, report = worked(inside, job([], environment))
    assert report == {"code": 137, "killed": "rank 3 was ended by SIGKILL by the kernel: out of memory"}


def test_a_frozen_process_is_named_and_woken_to_end_when_another_has_given_it_up(tmp_path: Path) -> None:
    environment = sitecustomize(tmp_path / "stop", STOP_ITSELF)
    # Longer than the test may take: nobody waits for what cannot hear.
    out, report = worked([sys.executable, *AGENT], job(["--help"], environment, count=2, stop_seconds=100_000))
    assert report == {"code": LOST_PEER_CODE, "killed": "rank 3 was frozen, as by SIGSTOP, and had to be ended"}
    # Not killed: it may have something to save. Nor asked to stop, which its journal would take for the reason.
    assert out.splitlines()[1] == "woken"


def told_while_frozen(word: str | None, environment: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
    """What a stopped process says first when it is woken, and what then is said and reported.

    Its agent is told a word, or left by its launcher.
    """
    with subprocess.Popen([sys.executable, *AGENT], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stderr is not None
        agent.stdin.write(json.dumps(job(["--help"], environment, stop_seconds=100_000)) + "\n")
        agent.stdin.flush()
        process = psutil.Process(int(agent.stdout.readline()))
        while process.status() != psutil.STATUS_STOPPED:
            pass
        if word is None:
            agent.stdin.close()
        else:
            agent.stdin.write(word)
            agent.stdin.flush()
        first, *_ = agent.stdout.read().splitlines()
        said, _, report = agent.stderr.read().partition(REPORT_MARK)
    return first, said, json.loads(report)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_the_users_signal_reaches_a_process_that_is_frozen_or_does_not_listen_yet(
    number: signal.Signals, tmp_path: Path
) -> None:
    """As it was given, so that messages and journals tell the truth; Python's own answer to a SIGINT is a traceback."""
    woken, said, report = told_while_frozen(f"{STOP} {number:d}\n", sitecustomize(tmp_path / "stop", STOP_ITSELF))
    assert woken == "woken and asked"
    assert said == f"tandem: stopped by {number.name}\n"
    assert report == {"code": stop_code(number), "killed": None}


def test_a_frozen_process_is_named_when_the_launcher_lets_go_because_another_host_has_given_it_up(
    tmp_path: Path,
) -> None:
    woken, said, report = told_while_frozen(None, sitecustomize(tmp_path / "stop", STOP_ITSELF))
    # It finds out by itself that it is alone: nobody has asked it to stop, and its journal must not say so.
    assert (woken, said) == ("woken", "")
    assert report == {"code": LOST_PEER_CODE, "killed": "rank 3 was frozen, as by SIGSTOP, and had to be ended"}


def test_the_agent_is_small() -> None:
    """It stands beside the training on every host, and starts before it; PyTorch would make it ten times as large."""
    code = "import sys, tandem.cluster.launch.remote_host; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_an_earlier_attempt_left_is_ended_before_the_next(frozen: bool, tmp_path: Path) -> None:
    left = subprocess.Popen(["sleep", "infinity"], env={**os.environ, "TANDEM_LAUNCHED_ON": "abc-vm1"})
    if frozen:
        left.send_signal(signal.SIGSTOP)
    other = subprocess.Popen(["sleep", "infinity"], env={**os.environ, "TANDEM_LAUNCHED_ON": "abc-vm2"})
    # A process that has ended is there until its parent has heard of it.
    reaped = threading.Thread(target=left.wait)
    reaped.start()
    look = {"corpus": None, "run": str(tmp_path), "port": None, "mark": "abc-vm1", "stop_seconds": 60}
    order = json.dumps({"inspect": look}) + "\n"
    answer = subprocess.run([sys.executable, *AGENT], input=order, capture_output=True, text=True, check=True)
    facts = json.loads(answer.stdout)
    assert (facts["has_run"], facts["newest_step"], facts["fault"]) == (False, None, None)
    # Waited for, so that nothing of it stands in the way.
    reaped.join()
    assert left.returncode == -15
    assert other.poll() is None
    other.kill()
    other.wait()


def test_the_newest_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    for step in (4, 12, 8):
        (tmp_path / f"checkpoints/step-{step:08d}").mkdir(parents=True)
    look = {"corpus": None, "run": str(tmp_path), "port": None, "mark": "abc-vm1", "stop_seconds": 1}
    order = json.dumps({"inspect": look}) + "\n"
    answer = subprocess.run([sys.executable, *AGENT], input=order, capture_output=True, text=True, check=True)
    facts = json.loads(answer.stdout)
    assert (facts["has_run"], facts["newest_step"]) == (True, 12)
