"""One command from one machine, on hosts with an ssh server each: what it starts, what it refuses, what it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tandem
from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.process_exit import LOST_PEER_CODE
from testbed.journals import read_journal
from testbed.network_rig import Host, Rig, Ssh
from tests.conftest import TINY

pytestmark = pytest.mark.slow

Ended = subprocess.CompletedProcess[str]
# More steps than any test waits for.
ENDLESS = ("train.max_steps=1000000", "evaluation.every_steps=1000000")


def train_arguments(corpus: PreparedCorpus, run: Path, *overrides: str) -> list[str]:
    return ["train", "demo", *TINY, *overrides, "--corpus", str(corpus.directory), "--run", str(run)]


def start(
    rig: Rig,
    ssh: str,
    arguments: Sequence[str],
    *options: str,
    hosts: str = "vm1:1,vm2:1",
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """`tandem launch` on vm1, in a directory that holds no package, so that it is the installed one that runs."""
    command = [sys.executable, "-m", "tandem", "launch", "-H", hosts, "--ssh", ssh, *options, "--", *arguments]
    command = ["env", "--chdir", "/", *command]
    quiet = {"OMP_NUM_THREADS": "1", **(env or {})}
    return rig.run(rig.hosts[0], command, quiet, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def with_path(directory: Path) -> dict[str, str]:
    """Variables by which every Python also looks into a directory for its modules, before all others."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))}


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=400)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def launched(rig: Rig, ssh: str, arguments: Sequence[str], *options: str, hosts: str = "vm1:1,vm2:1") -> Ended:
    return ended(start(rig, ssh, arguments, *options, hosts=hosts))


def assert_refused(result: Ended, *parts: str) -> None:
    """One line on the terminal, with all of this in it, and nothing started."""
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert all(part in result.stderr for part in parts), result.stderr
    assert not result.stdout


def processes_on(host: Host) -> list[str]:
    """Command lines of the Pythons that are alive on a host."""
    found = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True)
    lines = []
    for identifier in found.stdout.split():
        try:
            lines.append(Path(f"/proc/{identifier}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [line for line in lines if "tandem" in line and "sshd" not in line]


def started_process(run: Path, rank: int) -> int:
    records = read_journal(run / "journal" / f"rank-{rank}.jsonl")
    return int(next(record["process"] for record in records if record["kind"] == "started"))


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"ended without {text!r}: {process.stderr.read() if process.stderr else ''}")


@pytest.fixture
def ssh(rig_ssh: Ssh) -> str:
    return f"ssh -F {rig_ssh.config}"


def wrapped_ssh(ssh: Ssh, directory: Path, preparation: str) -> str:
    """An ssh after whose login on the other host something is done first, so that this host differs from the rest."""
    script = directory / "ssh"
    script.write_text(
        "#!/bin/bash\n"
        'arguments=("$@")\n'
        f'arguments[-1]="{preparation} ${{arguments[-1]}}"\n'
        f'exec ssh -F {ssh.config} "${{arguments[@]}}"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_trains_on_all_hosts_and_leaves_nothing_running(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    result = launched(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run"), hosts="vm1:2,vm2:2")
    assert result.returncode == 0, result.stderr
    assert "[vm1] finished at step 12" in result.stdout
    assert "4 processes" in result.stdout
    started = [next(read_journal(tmp_path / "run" / "journal" / f"rank-{rank}.jsonl")) for rank in range(4)]
    assert [record["host"] for record in started] == ["vm1", "vm1", "vm2", "vm2"]
    assert {record["interface"] for record in started} == {"veth0"}
    assert not processes_on(rig.hosts[0])
    assert not processes_on(rig.hosts[1])


@pytest.mark.long
def test_the_death_of_one_process_ends_all(rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    process = start(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run", *ENDLESS))
    wait_for_line(process, "step 2/")
    victim = started_process(tmp_path / "run", 1)
    subprocess.run(["kill", "-KILL", str(victim)], check=True)
    result = ended(process)
    # Whichever host notices first: its process was killed, or has lost its peer.
    assert result.returncode in (128 + signal.SIGKILL, LOST_PEER_CODE)
    assert "Traceback" not in result.stderr
    assert "tandem: vm2: rank 1 was ended by SIGKILL\n" in result.stderr
    assert not processes_on(rig.hosts[0])
    assert not processes_on(rig.hosts[1])


def test_ctrl_c_saves_and_stops_all_hosts(rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    endless = (*ENDLESS, "checkpoint.every_steps=1000000")
    process = start(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run", *endless))
    wait_for_line(process, "step 2/")
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert result.returncode == 130
    assert "[vm1] stopped on request (SIGINT) at step " in result.stdout
    for rank in (0, 1):
        assert list(read_journal(tmp_path / f"run/journal/rank-{rank}.jsonl"))[-1]["signal"] == "SIGINT"
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) == 1
    assert not processes_on(rig.hosts[0])
    assert not processes_on(rig.hosts[1])


def test_nothing_outlives_a_launcher_that_was_killed(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    process = start(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run", *ENDLESS))
    wait_for_line(process, "step 2/")
    workers = [started_process(tmp_path / "run", rank) for rank in (0, 1)]
    process.kill()
    for worker in workers:
        # Returns when the process has ended; the test's time limit is the bound.
        subprocess.run(["tail", f"--pid={worker}", "-f", "/dev/null"], check=True)


def test_hosts_that_cannot_be_reached_are_all_named(
    rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    arguments = train_arguments(tiny_corpus, tmp_path / "run")
    result = launched(rig, ssh, arguments, hosts="vm1:1,nowhere:1,10.99.0.200:1")
    assert_refused(result, "nowhere: ", "10.99.0.200: ")
    assert not (tmp_path / "run").exists()


def test_refused_ssh(rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    result = launched(rig, f"{ssh} -p 4445", train_arguments(tiny_corpus, tmp_path / "run"))
    assert_refused(result, "vm2: ", "refused")


def test_another_version_on_a_host(rig: Rig, rig_ssh: Ssh, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(tandem.__file__).parent, other / "tandem")
    with (other / "tandem" / "errors.py").open("a") as source:
        source.write("# One comment makes another version.\n")
    ssh = wrapped_ssh(rig_ssh, tmp_path, f"export PYTHONPATH={other};")
    result = launched(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run"))
    assert_refused(result, "vm2 has tandem", "install the same")


def test_another_corpus_on_a_host(
    rig: Rig, rig_ssh: Ssh, tiny_corpus: PreparedCorpus, demo_text: Path, tmp_path: Path
) -> None:
    corpus, other = tmp_path / "corpus", tmp_path / "other"
    shutil.copytree(tiny_corpus.directory, corpus)
    files = {split: (demo_text / f"{split}.en", demo_text / f"{split}.de") for split in ("train", "dev")}
    prepare(CorpusTexts([files["train"]], files["dev"]), other, CorpusConfig(vocab_size=500))
    # A host of the rig has its own view of the file system, in which this changes nothing for the others.
    ssh = wrapped_ssh(rig_ssh, tmp_path, f"mount --bind {other} {corpus};")
    result = launched(rig, ssh, train_arguments(PreparedCorpus.open(corpus), tmp_path / "run"))
    assert_refused(result, "vm2 has", str(corpus))


def test_no_corpus_on_a_host(rig: Rig, ssh: str, tmp_path: Path) -> None:
    result = launched(rig, ssh, ["train", "demo", "--corpus", str(tmp_path / "nix"), "--run", str(tmp_path / "run")])
    assert_refused(result, "vm1: ", "vm2: ", "nix")


def test_a_port_in_use(rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    listen = "import signal, socket; s = socket.create_server(('', 29876)); print('ready', flush=True); signal.pause()"
    occupant = rig.run(rig.hosts[0], [sys.executable, "-c", listen], stdout=subprocess.PIPE)
    assert occupant.stdout is not None
    assert occupant.stdout.readline() == "ready\n"
    result = launched(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run"), "--port", "29876")
    occupant.kill()
    assert_refused(result, "29876", "--port")


def test_a_process_killed_before_it_arrives(rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    # Every Python reads this file when it starts; that of rank 1 ends here.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\nif os.environ.get('RANK') == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = start(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run"), env=with_path(tmp_path))
    result = ended(process)
    assert result.returncode == 128 + signal.SIGKILL
    assert result.stderr.splitlines() == ["tandem: vm2: rank 1 was ended by SIGKILL"]
    assert not processes_on(rig.hosts[0])
    assert not processes_on(rig.hosts[1])


@pytest.mark.long
def test_a_wrong_interface(rig: Rig, ssh: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    result = launched(rig, ssh, train_arguments(tiny_corpus, tmp_path / "run", "cluster.interface=eth7"))
    assert result.returncode == 2
    assert "has no eth7" in result.stderr
    assert "veth0" in result.stderr
    assert "Traceback" not in result.stderr
    assert not processes_on(rig.hosts[0])
    assert not processes_on(rig.hosts[1])
