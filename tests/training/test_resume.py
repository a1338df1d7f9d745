"""Rule 2: stopping changes nothing. Real processes are killed, and the weights compared bit by bit."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, STATE_FILE
from testbed.journals import read_journal
from tests.training.processes import run_training, signal_training_when

FINAL = "checkpoints/step-00000012"


def assert_same_end(left: Path, right: Path) -> None:
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        assert (left / FINAL / name).read_bytes() == (right / FINAL / name).read_bytes(), name
    numbers = [json.loads((run / FINAL / STATE_FILE).read_text())["numbers"] for run in (left, right)]
    assert numbers[0] == numbers[1]


# Three, because only then does the order of a sum over processes matter.
@pytest.fixture(
    scope="module", params=[pytest.param(1, id="1-process"), pytest.param(3, id="3-processes", marks=pytest.mark.long)]
)
def processes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def undisturbed(processes: int, tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    ended = run_training(tiny_corpus, run, processes=processes)
    assert ended.returncode == 0, ended.stderr
    return run


@pytest.mark.long
def test_killed_again_and_again_a_run_ends_with_the_same_bits(
    processes: int, undisturbed: Path, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # Before the first checkpoint, and right after an evaluation.
    for line in ("step 2/", "step 6: dev BLEU"):
        signal_training_when(line, signal.SIGKILL, tiny_corpus, run, processes=processes)
    ended = run_training(tiny_corpus, run, processes=processes)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"continuing after step [4-8]\b", ended.stdout)
    assert_same_end(undisturbed, run)


@pytest.mark.slow
def test_killed_or_not_passes_in_parallel_end_with_the_same_bits(
    tiny_corpus: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of two threads: each has two micro-batches in parallel, which end in any order."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_training(tiny_corpus, whole, "batch.micro_batches=4", processes=2).returncode == 0
    signal_training_when("step 6: dev BLEU", signal.SIGKILL, tiny_corpus, killed, "batch.micro_batches=4", processes=2)
    assert run_training(tiny_corpus, killed, "batch.micro_batches=4", processes=2).returncode == 0
    started = [record for record in read_journal(killed / "journal/rank-1.jsonl") if record["kind"] == "started"]
    assert {record["parallel_micro_batches"] for record in started} == {2}
    assert_same_end(whole, killed)


@pytest.mark.slow
def test_a_request_to_stop_is_agreed_and_saved(
    processes: int, undisturbed: Path, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    signal_training_when("step 2/", signal.SIGTERM, tiny_corpus, run, processes=processes)
    journals = sorted((run / "journal").glob("*.jsonl"))
    assert len(journals) == processes
    ends = [list(read_journal(path))[-1] for path in journals]
    assert {end["reason"] for end in ends} == {"stopped on request"}
    stopped_at = {end["step"] for end in ends}
    assert len(stopped_at) == 1
    assert (run / f"checkpoints/step-{stopped_at.pop():08d}").is_dir()
    assert run_training(tiny_corpus, run, processes=processes).returncode == 0
    assert_same_end(undisturbed, run)


@pytest.mark.slow
def test_a_finished_run_is_left_as_it_is(processes: int, undisturbed: Path, tiny_corpus: PreparedCorpus) -> None:
    before = (undisturbed / FINAL / MODEL_FILE).stat().st_mtime_ns
    again = run_training(tiny_corpus, undisturbed, processes=processes)
    assert again.returncode == 0, again.stderr
    assert "finished at step 12" in again.stdout
    assert (undisturbed / FINAL / MODEL_FILE).stat().st_mtime_ns == before
