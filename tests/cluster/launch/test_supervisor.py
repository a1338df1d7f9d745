"""Runs that go on by themselves: after a killed process, without a lost host, and with it again."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import checkpoint_directories
from testbed.journals import read_journal
from testbed.network_rig import Host, Rig, Ssh
from tests.cluster.launch.test_ssh_launch import ENDLESS, ended, launched, start, train_arguments, wait_for_line
from tests.training.processes import train_on_hosts

pytestmark = pytest.mark.slow

# The strategy is not to be chosen anew by measurements, nor the rounding to hide what differs.
SETTINGS = ("exchange.kind=allreduce", "train.precision=float32", "evaluation.every_steps=1000", "search.beam=1")
STEPS = 30
CANARY = "canary-in-the-token"


@pytest.fixture
def ssh(rig_ssh: Ssh) -> str:
    return f"ssh -F {rig_ssh.config}"


def newest_start(run: Path, rank: int) -> int:
    """Id of the process that was last started as a rank."""
    records = read_journal(run / "journal" / f"rank-{rank}.jsonl")
    return [int(record["process"]) for record in records if record["kind"] == "started"][-1]


def command_lines(host: Host) -> str:
    """Command lines of everything on a host, as `ps` shows them."""
    found = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True)
    lines = []
    for identifier in found.stdout.split():
        try:
            lines.append(Path(f"/proc/{identifier}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return "\n".join(lines)


def wait_for_said(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"ended without {text!r}")


def losses(run: Path) -> dict[int, float]:
    """The loss by step; of a step that was taken again the later one."""
    records = read_journal(run / "journal" / "rank-0.jsonl")
    return {record["step"]: record["train_loss"] for record in records if record["kind"] == "progressed"}


@contextmanager
def stopped_at_the_end(rig: Rig, process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        rig.end(process)


def test_a_killed_process_costs_a_restart_and_no_bit(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    settings = (*SETTINGS, f"train.max_steps={STEPS}", f"checkpoint.every_steps={STEPS // 6}")
    for undisturbed in train_on_hosts([tiny_corpus] * 2, [tmp_path / "undisturbed"] * 2, ("vm1", "vm2"), *settings):
        assert undisturbed.returncode == 0, undisturbed.stderr
    arguments = train_arguments(tiny_corpus, tmp_path / "run", *settings)
    process = start(rig, ssh, arguments, "--restarts", "2", env={"TANDEM_TOKEN": CANARY})
    with stopped_at_the_end(rig, process):
        wait_for_line(process, "step 2/")
        first = newest_start(tmp_path / "run", 1)
        variables = Path(f"/proc/{first}/environ").read_text().split("\0")
        shown = [command_lines(host) for host in rig.hosts]
        subprocess.run(["kill", "-KILL", str(first)], check=True)
        result = ended(process)
    assert result.returncode == 0, result.stderr
    # What only the processes may know did not pass by any command line.
    assert f"TANDEM_TOKEN={CANARY}" in variables
    assert any(re.fullmatch(r"TANDEM_LAUNCH_ID=[0-9a-f]+-1", variable) for variable in variables)
    assert all("tandem train" in lines and CANARY not in lines for lines in shown)
    assert "tandem: vm2: rank 1 was ended by SIGKILL; attempt 2 of 3 in 5 s\n" in result.stderr
    assert f"[vm1] finished at step {STEPS}" in result.stdout
    weights = [
        (checkpoint_directories(tmp_path / name / "checkpoints")[STEPS] / "model.safetensors").read_bytes()
        for name in ("undisturbed", "run")
    ]
    assert weights[0] == weights[1]


def test_a_killed_agent_is_told_and_leaves_nothing(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    process = start(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run", *ENDLESS))
    wait_for_line(process, "step 2/")
    worker = newest_start(tmp_path / "run", 1)
    agent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    subprocess.run(["kill", "-KILL", str(agent)], check=True)
    result = ended(process)
    assert result.returncode
    said = "tandem: vm2: the agent was killed by SIGKILL, perhaps out of memory; dmesg on vm2 tells\n"
    assert said in result.stderr
    assert all("tandem train" not in command_lines(host) for host in rig.hosts)


def test_a_users_error_and_a_stop_are_not_tried_again(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    wrong = train_arguments(tiny_corpus, tmp_path / "wrong", "cluster.interface=eth7")
    result = launched(rig, ssh, wrong, "--restarts", "3")
    assert result.returncode == 2
    assert "attempt" not in result.stderr
    process = start(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run", *ENDLESS), "--restarts", "3")
    wait_for_line(process, "step 2/")
    process.send_signal(signal.SIGTERM)
    result = ended(process)
    assert result.returncode == 128 + signal.SIGTERM
    assert "attempt" not in result.stderr


@pytest.mark.long
def test_goes_on_without_a_lost_host_and_takes_it_back(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """Three sessions with two hosts, one and two again take the steps of one process that is left alone."""
    vm2 = rig.hosts[1]
    arguments = train_arguments(tiny_corpus, tmp_path / "run", *SETTINGS, *ENDLESS, "train.log_every=1")
    process = start(rig, ssh, arguments, "--restarts", "2", "--min-hosts", "1")
    with stopped_at_the_end(rig, process):
        wait_for_line(process, "step 10/")
        rig.power_off(vm2)
        wait_for_said(process, "tandem: vm2: lost the connection; attempt 2 of 3 in 5 s")
        wait_for_said(process, "tandem: going on with vm1, without vm2: ")
        wait_for_line(process, "1 process")
        wait_for_line(process, "[vm1] step ")
        rig.power_on(vm2)
        wait_for_said(process, "tandem: vm2: is back; asking the others to save and stop, to go on with it")
        wait_for_line(process, "2 processes")
        wait_for_line(process, "[vm1] step ")
        process.send_signal(signal.SIGINT)
        result = ended(process)
    assert result.returncode == 128 + signal.SIGINT
    starts = [record for record in read_journal(tmp_path / "run/journal/rank-0.jsonl") if record["kind"] == "started"]
    assert [record["hosts"] for record in starts] == [["vm1", "vm2"], ["vm1"], ["vm1", "vm2"]]
    seen = losses(tmp_path / "run")
    # The first step of the last session, and all before it.
    steps = starts[-1]["step"] + 1
    settings = (*SETTINGS, "train.log_every=1", f"train.max_steps={steps}")
    alone = launched(rig, ssh, train_arguments(tiny_corpus, tmp_path / "alone", *settings), hosts="vm1:1")
    assert alone.returncode == 0, alone.stderr
    expected = losses(tmp_path / "alone")
    assert list(expected) == list(range(1, steps + 1))
    assert [seen[step] for step in expected] == pytest.approx(list(expected.values()), rel=1e-3)
