"""Open MPI starts a run on two hosts, and nobody types an address or a rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from testbed.network_rig import CARD, Rig, Ssh
from tests.training.processes import train_command

pytestmark = pytest.mark.slow


def mpirun_command(ssh: Ssh, directory: Path, processes: int) -> list[str]:
    """mpirun and its options, for so many processes on each of two hosts."""
    settings = {
        "plm_rsh_agent": f"ssh -F {ssh.config}",
        "oob_tcp_if_include": CARD,
        "btl_tcp_if_include": CARD,
        "orte_tmpdir_base": str(directory),
    }
    options = ["--allow-run-as-root", "-n", str(2 * processes), "-H", f"vm1:{processes},vm2:{processes}"]
    # Both hosts would bind their first process to the machine's first core.
    options += ["--bind-to", "none", "-x", "OMP_NUM_THREADS"]
    return ["mpirun", *options, *(part for name, value in settings.items() for part in ("--mca", name, value))]


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.long), 2])
def test_mpirun_trains_on_two_hosts(
    rig: Rig, rig_ssh: Ssh, tiny_corpus: PreparedCorpus, tmp_path: Path, processes: int
) -> None:
    launcher = mpirun_command(rig_ssh, tmp_path, processes)
    train = train_command(tiny_corpus, tmp_path / "run", "exchange.kind=allreduce", "search.beam=1")
    mpirun = rig.run(rig.hosts[0], [*launcher, *train], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = mpirun.communicate(timeout=300)
    assert mpirun.returncode == 0, said
    journals = [list(read_journal(tmp_path / f"run/journal/rank-{rank}.jsonl")) for rank in range(2 * processes)]
    assert len(list((tmp_path / "run/journal").iterdir())) == len(journals)
    started = [journal[0] for journal in journals]
    assert [(record["rank"], record["world_size"]) for record in started] == list(
        zip(range(2 * processes), [2 * processes] * 2 * processes, strict=True)
    )
    assert [record["host"] for record in started] == ["vm1"] * processes + ["vm2"] * processes
    assert {tuple(record["hosts"]) for record in started} == {("vm1", "vm2")}
    assert {record["interface"] for record in started} == {CARD}
    assert [(journal[-1]["kind"], journal[-1]["reason"]) for journal in journals] == [
        ("ended", "finished")
    ] * 2 * processes
