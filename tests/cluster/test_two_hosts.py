"""Training over a real network between two hosts: who talks through what, how much passes, who waits for whom."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from testbed.network_rig import CARD, Host, Rig, slowed
from tests.training.processes import train_command
from tests.warm import WarmProcess, start_server

pytestmark = pytest.mark.slow

PORT = 29400
# Of a single training, on a machine that is busy with other things.
TIMEOUT = 200
STEPS = 16
# About a million parameters, so that a gradient is large beside the small messages of a step, and few tokens.
LARGE = (
    "model.d_model=128",
    "model.d_ff=512",
    "model.max_length=64",
    "batch.tokens=64",
    "batch.micro_batches=2",
    "search.beam=1",
    f"train.max_steps={STEPS}",
    f"train.log_every={STEPS}",
    f"evaluation.every_steps={STEPS}",
    f"checkpoint.every_steps={STEPS}",
)


@dataclass(frozen=True)
class Training:
    """A training process that has ended, with a run directory of its own."""

    directory: Path
    code: int
    complaint: str

    def records(self, kind: str) -> list[dict[str, Any]]:
        (journal,) = (self.directory / "journal").glob("*.jsonl")
        return [record for record in read_journal(journal) if record["kind"] == kind]

    def record(self, kind: str) -> dict[str, Any]:
        (found,) = self.records(kind)
        return found


@dataclass(frozen=True)
class Lab:
    """Starts trainings on the hosts, each time a new run."""

    rig: Rig
    corpus: PreparedCorpus
    directory: Path
    starters: Mapping[Host, socket.socket]
    """The warm server of each host."""
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, host: Host, *overrides: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start the process of one host."""
        rank, hosts = self.rig.hosts.index(host), self.rig.hosts
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "LOCAL_RANK": "0"}
        meeting = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT)}
        expected = {"TANDEM_HOSTS": ",".join(f"{host.name}:1" for host in hosts)}
        command = train_command(self.corpus, self.directory / host.name, *overrides)
        env = {**os.environ, **place, **meeting, **expected}
        process = WarmProcess(
            command,
            by=self.starters[host],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def finish(self, host: Host, process: subprocess.Popen[str]) -> Training:
        _, complaint = process.communicate(timeout=TIMEOUT)
        return Training(self.directory / host.name, process.returncode, complaint)

    def train(self, *overrides: str) -> list[Training]:
        """Train on all hosts to the end."""
        processes = [self.start(host, *overrides) for host in self.rig.hosts]
        ended = [self.finish(host, process) for host, process in zip(self.rig.hosts, processes, strict=True)]
        assert [training.code for training in ended] == [0, 0], [training.complaint for training in ended]
        return ended


@pytest.fixture(scope="module")
def starters(rig: Rig) -> Iterator[Mapping[Host, socket.socket]]:
    """On each host a process that starts trainings."""
    with ExitStack() as stack:
        yield {host: stack.enter_context(start_server("tandem", host.inside)) for host in rig.hosts}


@pytest.fixture
def lab(rig: Rig, starters: Mapping[Host, socket.socket], tiny_corpus: PreparedCorpus, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(rig, tiny_corpus, tmp_path, starters)
    yield lab
    # A test that fails leaves some behind, and the next one wants their port.
    for process in lab.started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def runs(
    rig: Rig,
    starters: Mapping[Host, socket.socket],
    tiny_corpus: PreparedCorpus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], list[Training]]:
    """A training with each exchange strategy, taken when it is first asked for."""
    taken: dict[str, list[Training]] = {}

    def take(kind: str) -> list[Training]:
        if kind not in taken:
            lab = Lab(rig, tiny_corpus, tmp_path_factory.mktemp(kind), starters)
            exchange = (f"exchange.kind={kind}", f"exchange.local_steps={STEPS}", "exchange.start_steps=0")
            taken[kind] = lab.train(*LARGE, *exchange)
        return taken[kind]

    return take


def gradient_bytes(training: Training) -> int:
    """Size of a gradient in float32."""
    return 4 * int(training.record("started")["parameters"])


def sent_per_step(training: Training) -> float:
    """Bytes sent per step, as the host's network card has counted."""
    stretch = training.record("progressed")
    assert stretch["steps"] == STEPS
    return float(stretch["network_sent_bytes"]) / STEPS


def complaint_line(training: Training) -> str:
    """The one line that a process ended with."""
    assert training.code == 2, training.complaint
    (line,) = training.complaint.splitlines()
    return line


def test_hosts_talk_through_the_card_that_leads_to_the_other(runs: Callable[[str], list[Training]], rig: Rig) -> None:
    started = [training.record("started") for training in runs("allreduce")]
    assert [(record["rank"], record["world_size"]) for record in started] == [(0, 2), (1, 2)]
    assert [record["host"] for record in started] == ["vm1", "vm2"]
    assert [record["hosts"] for record in started] == [["vm1", "vm2"]] * 2
    assert [record["interface"] for record in started] == [CARD] * 2
    assert [record["address"] for record in started] == [host.address for host in rig.hosts]


@pytest.mark.parametrize("rank", [0, 1])
def test_allreduce_sends_each_gradient_once(runs: Callable[[str], list[Training]], rank: int) -> None:
    """Twice one half of it, as two processes in a ring do."""
    training = runs("allreduce")[rank]
    assert sent_per_step(training) == pytest.approx(gradient_bytes(training), rel=0.05)


@pytest.mark.parametrize("rank", [0, 1])
def test_int4_sends_almost_eight_times_less(runs: Callable[[str], list[Training]], rank: int) -> None:
    training = runs("int4")[rank]
    # 256 values of 4 bytes become 256 of half a byte and a scale of two.
    assert sent_per_step(training) == pytest.approx(gradient_bytes(training) * 130 / 1024, rel=0.05)


@pytest.mark.parametrize("rank", [0, 1])
def test_local_steps_send_a_hundred_times_less(runs: Callable[[str], list[Training]], rank: int) -> None:
    training = runs("diloco")[rank]
    assert sent_per_step(training) < gradient_bytes(training) / 100
    # But they do send: it is no run of two hosts that never meet.
    assert sent_per_step(training) > gradient_bytes(training) * 130 / 1024 / STEPS


@pytest.mark.parametrize("kind", ["allreduce", "int4", "diloco"])
def test_what_is_calculated_is_what_passes(runs: Callable[[str], list[Training]], kind: str) -> None:
    for training in runs(kind):
        stretch = training.record("progressed")
        assert stretch["network_sent_bytes"] == pytest.approx(stretch["exchanged_bytes"], rel=0.1)


@pytest.fixture
def limited(rig: Rig) -> Iterator[Callable[[str], None]]:
    """Limits the link until the end of the test."""
    yield rig.limit
    rig.limit(None)


def test_a_host_that_never_comes_is_named(lab: Lab) -> None:
    vm1, _ = lab.rig.hosts
    line = complaint_line(lab.finish(vm1, lab.start(vm1, "cluster.join_seconds=2")))
    assert line.startswith("tandem: 1 of 2 processes did not arrive within 2 s: rank 1 on vm2;")


def test_a_meeting_place_that_never_comes_is_named(lab: Lab) -> None:
    vm1, vm2 = lab.rig.hosts
    line = complaint_line(lab.finish(vm2, lab.start(vm2, "cluster.join_seconds=2")))
    assert line.startswith(f"tandem: nobody answered vm2 at {vm1.address}, port {PORT}, within 2 s (")


@pytest.mark.parametrize(
    ("interface", "fault"),
    [
        ("nonsense", f"{{here}} has no nonsense with an address; choose one of lo, {CARD}"),
        ("lo", "lo of {here} leads to no other host; leave it empty, or name one that reaches {there}"),
    ],
)
def test_an_interface_that_will_not_do_is_said_once(lab: Lab, interface: str, fault: str) -> None:
    processes = {host: lab.start(host, f"cluster.interface={interface}") for host in lab.rig.hosts}
    ended = [lab.finish(host, process) for host, process in processes.items()]
    assert [training.code for training in ended] == [2, 2]
    faults = [fault.format(here=here, there=there) for here, there in (("vm1", "vm2"), ("vm2", "vm1"))]
    said = "; ".join(f"rank {rank} on vm{rank + 1}: cluster.interface: {text}" for rank, text in enumerate(faults))
    assert "".join(training.complaint for training in ended) == f"tandem: {said}\n"


def test_a_wrong_interface_of_one_host_ends_both(lab: Lab) -> None:
    vm1, vm2 = lab.rig.hosts
    # Nobody may wait that long for a process that will never connect.
    patience = f"cluster.join_seconds={3 * TIMEOUT}"
    wrong, right = lab.start(vm2, patience, "cluster.interface=nonsense"), lab.start(vm1, patience)
    ended = [lab.finish(vm2, wrong), lab.finish(vm1, right)]
    assert [training.code for training in ended] == [2, 2]
    (line,) = "".join(training.complaint for training in ended).splitlines()
    assert line.startswith("tandem: rank 1 on vm2: cluster.interface: vm2 has no nonsense")


def test_on_a_fast_link_auto_takes_the_plain_sum(lab: Lab) -> None:
    # A hundred thousand parameters and thousands of tokens: next to nothing to send after much to compute.
    plans = [run.record("planned") for run in lab.train("batch.tokens=2048", "train.max_steps=1", "search.beam=1")]
    assert [plan["exchange"] for plan in plans] == ["allreduce"] * 2
    assert [list(plan["slow_downs"]) for plan in plans] == [["allreduce"]] * 2
    assert plans[0] == {**plans[1], "time": plans[0]["time"]}


def test_on_a_slow_link_auto_takes_local_steps(lab: Lab, limited: Callable[[str], None]) -> None:
    # A gradient takes four seconds, and half a one in four bits; a step of some sentences takes milliseconds.
    limited("8mbit")
    plans = [run.record("planned") for run in lab.train(*LARGE, "train.max_steps=1")]
    assert [plan["exchange"] for plan in plans] == ["diloco"] * 2
    assert plans[0]["local_steps"] >= 16
    assert plans[0]["reason"].startswith(
        f"diloco with {plans[0]['local_steps']} local steps: the hosts send each other"
    )
    assert list(plans[0]["slow_downs"])[:4] == ["allreduce", "bf16", "int4", "diloco with 16 local steps"]
    assert plans[0] == {**plans[1], "time": plans[0]["time"]}


@pytest.mark.long
def test_time_lost_to_a_slower_host_is_waiting(lab: Lab) -> None:
    # With bf16 every exchange is taken apart, so that no step's waiting is guessed from another's.
    settings = ("exchange.kind=bf16", "batch.tokens=1024", "train.max_steps=16", "train.log_every=8")
    vm1, vm2 = lab.rig.hosts
    fast, slow = lab.start(vm1, *settings, stdout=subprocess.PIPE), lab.start(vm2, *settings)
    # The first line comes when both have met. A slowed start would take long and show nothing.
    assert fast.stdout is not None
    assert fast.stdout.readline()
    with slowed(slow, share=0.1):
        ended = [lab.finish(vm1, fast), lab.finish(vm2, slow)]
    assert [training.code for training in ended] == [0, 0], [training.complaint for training in ended]
    # The last stretch, in which nothing happens for the first time.
    parts = [training.records("progressed")[-1]["seconds"] for training in ended]
    assert parts[0]["waiting"] > 2 * parts[0]["communication"]
    assert parts[0]["waiting"] > 2 * parts[1]["waiting"]
