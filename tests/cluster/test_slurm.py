"""A real Slurm with two hosts: srun's processes meet, and a job goes on by itself after a signal and a requeue."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from testbed.network_rig import Rig
from testbed.slurm_cluster import SlurmCluster, unavailable, wait_until
from tests.conftest import TINY
from tests.places import REPOSITORY

pytestmark = pytest.mark.long

SCRIPT = REPOSITORY / "deploy" / "slurm.sbatch"
# More steps than any test waits for.
ENDLESS = ("train.max_steps=1000000", "evaluation.every_steps=1000000", "train.log_every=1")


@pytest.fixture(scope="module")
def slurm(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := unavailable():
        pytest.skip(reason)
    with SlurmCluster(rig, tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`tandem` in the path, as users have it."""
    program = tmp_path / "bin" / "tandem"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tandem "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}


def train(corpus: PreparedCorpus, run: Path, *settings: str) -> list[str]:
    return ["demo", *TINY, *settings, "--corpus", str(corpus.directory), "--run", str(run)]


def records(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    journal = run / "journal" / f"rank-{rank}.jsonl"
    return [record for record in read_journal(journal) if record["kind"] == kind] if journal.exists() else []


def submit(slurm: SlurmCluster, environment: dict[str, str], *arguments: str) -> int:
    said = slurm.call("sbatch", *arguments, env=environment)
    found = re.search(r"Submitted batch job (\d+)", said)
    assert found, said
    return int(found[1])


def wait_for_state(slurm: SlurmCluster, job: int, *states: str) -> None:
    wait_until(lambda: slurm.job(job)["JobState"] in states, f"job {job} in state {' or '.join(states)}")


def test_the_processes_of_srun_meet_and_take_the_cores_they_were_given(
    slurm: SlurmCluster, tiny_corpus: PreparedCorpus, environment: dict[str, str], tmp_path: Path
) -> None:
    # The test's own choice would hide Slurm's.
    command = ["env", "-u", "OMP_NUM_THREADS", "srun", "-N2", "-n2", "-c1", "tandem", "train"]
    slurm.call(*command, *train(tiny_corpus, tmp_path / "run"), env=environment)
    started = [records(tmp_path / "run", "started", rank)[0] for rank in (0, 1)]
    assert [record["host"] for record in started] == ["vm1", "vm2"]
    assert [record["threads"] for record in started] == [1, 1]
    (ended,) = records(tmp_path / "run", "ended")
    assert ended["step"] == 12


@pytest.mark.parametrize("whom", [["--batch"], []], ids=["the script, as --signal=B:USR1 does", "the processes"])
def test_a_job_goes_on_after_usr1_without_a_word(
    slurm: SlurmCluster, tiny_corpus: PreparedCorpus, environment: dict[str, str], tmp_path: Path, whom: Sequence[str]
) -> None:
    run = tmp_path / "run"
    options = ["--chdir", str(tmp_path), "--cpus-per-task=1", str(SCRIPT)]
    job = submit(slurm, environment, *options, *train(tiny_corpus, run, *ENDLESS))
    wait_until(lambda: bool(records(run, "saved")), "a checkpoint")
    slurm.call("scancel", *whom, "--signal=USR1", str(job))
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", "the job back in the queue")
    # After two minutes of rest, by itself: sooner, its hosts may still refuse it as the job that has ended.
    wait_until(lambda: len(records(run, "started")) == 2, "the second attempt")
    again = records(run, "started")[1]["time"]
    saved = max(record["step"] for record in records(run, "saved") if record["time"] < again)

    def steps_of_second_attempt() -> list[int]:
        return [record["step"] for record in records(run, "progressed") if record["time"] > again]

    wait_until(lambda: len(steps_of_second_attempt()) > 1, "steps of the second attempt")
    # Where the first attempt saved, the second one goes on.
    assert steps_of_second_attempt()[:2] == [saved + 1, saved + 2]
    slurm.call("scancel", "--signal=KILL", "--full", str(job))


def test_two_steps_of_one_job_do_not_meet(
    slurm: SlurmCluster, tiny_corpus: PreparedCorpus, environment: dict[str, str], tmp_path: Path
) -> None:
    step = "srun -N2 -n2 -c1 --exact --overlap tandem train"
    first, second = (
        f"{step} {' '.join(train(tiny_corpus, tmp_path / name, f'train.seed={seed}'))}"
        for seed, name in enumerate(("first", "second"))
    )
    script = tmp_path / "two-steps"
    script.write_text(f"#!/bin/bash\n{first} & one=$!\n{second} & two=$!\nwait $one && wait $two\n")
    options = ["--chdir", str(tmp_path), "--output=log", "-N2", "--ntasks-per-node=1", "--cpus-per-task=2"]
    job = submit(slurm, environment, *options, str(script))
    wait_for_state(slurm, job, "COMPLETED", "FAILED", "CANCELLED")
    assert slurm.job(job)["JobState"] == "COMPLETED", (tmp_path / "log").read_text()
    for name in ("first", "second"):
        ranks = [records(tmp_path / name, "started", rank) for rank in (0, 1)]
        assert [len(started) for started in ranks] == [1, 1]
