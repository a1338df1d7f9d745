"""A user's error in several processes, however they were started: one of them says it, all end with code 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from testbed.network_rig import mpirun_unavailable
from tests.cluster.ranks import rank_environments
from tests.conftest import TINY
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow

Launch = Callable[..., subprocess.CompletedProcess[str]]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
TANDEM = [sys.executable, "-m", "tandem"]


def run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TANDEM_HOST": "vm", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )


def run_ranks(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in two processes that have torchrun's environment, and nobody who ends one with the other."""
    processes = [
        WarmProcess([*TANDEM, *arguments], env=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for place in rank_environments(["vm", "vm"])
    ]
    said = "".join(process.communicate(timeout=200)[0] for process in processes)
    assert processes[0].returncode == processes[1].returncode
    return subprocess.CompletedProcess(arguments, processes[0].returncode, said)


LAUNCHERS = ["ranks", *(pytest.param(name, marks=pytest.mark.long) for name in ("torchrun", "mpirun"))]


@pytest.fixture(params=LAUNCHERS)
def launch(request: pytest.FixtureRequest) -> Launch:
    """Runs a command in two processes and returns what both of them print."""
    if request.param == "mpirun" and (reason := mpirun_unavailable()):
        pytest.skip(reason)
    if request.param == "ranks":
        return run_ranks
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tandem"]
    launcher = [*MPIRUN, "-n", "2", *TANDEM] if request.param == "mpirun" else [*torchrun, "--"]
    return lambda *arguments: run([*launcher, *arguments])


def assert_said_once(ended: subprocess.CompletedProcess[str], message: str) -> None:
    assert ended.stdout.count(message) == 1, ended.stdout
    # Nor is there a second message in other words.
    assert ended.stdout.count("tandem: ") <= 1, ended.stdout
    # torchrun has an exit code of its own, and shows those of its processes.
    assert ended.returncode == 2 or "exitcode  : 2" in ended.stdout, ended.stdout


def test_an_unknown_setting(launch: Launch, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    files = ("--corpus", str(tiny_corpus.directory), "--run", str(tmp_path / "run"))
    assert_said_once(launch("train", "demo", "model.nonsense=1", *files), "  model.nonsense: unknown; ")


@pytest.mark.parametrize("launch", ["torchrun", pytest.param("mpirun", marks=pytest.mark.long)], indirect=True)
def test_an_unknown_option(launch: Launch) -> None:
    assert_said_once(launch("train", "demo", "--nonsense"), "No such option: --nonsense")


def test_no_corpus(launch: Launch, tmp_path: Path) -> None:
    files = ("--corpus", str(tmp_path / "nix"), "--run", str(tmp_path / "run"))
    assert_said_once(launch("train", "demo", *files), f"tandem: {tmp_path / 'nix'}")


@pytest.mark.parametrize("with_corpus", [0, 1])
def test_no_corpus_for_one_rank(tiny_corpus: PreparedCorpus, tmp_path: Path, with_corpus: int) -> None:
    """Both take it from their working directory, and only one of these has it."""
    if reason := mpirun_unavailable():
        pytest.skip(reason)
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        place.mkdir()
    shutil.copytree(tiny_corpus.directory, places[with_corpus] / "corpus")
    command = [*TANDEM, "train", "demo", *TINY, "--corpus", "corpus", "--run", str(tmp_path / "run")]
    first, second = (["-n", "1", "--wdir", str(place), *command] for place in places)
    ended = run([*MPIRUN, *first, ":", *second])
    assert_said_once(ended, f"tandem: rank {1 - with_corpus} on vm: corpus")
