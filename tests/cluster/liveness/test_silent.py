"""Trainings whose processes are stopped, killed or hang: the sentences, the journals and the account of time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.cluster.liveness.trainings import training


@pytest.mark.long
def test_a_stopped_process_is_named_and_goes_on(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    with training(tiny_corpus, tmp_path / "run", ["a", "b"]) as (first, second):
        first.wait_for("step 3/")
        second.signal(signal.SIGSTOP)
        named = first.wait_for("rank 1 on b: no heartbeat for ")
        assert named.endswith("; its host answers: the process is stopped, or gets neither memory nor processor")
        second.signal(signal.SIGCONT)
        first.wait_for("rank 1 on b goes on after ")
        first.wait_for("step ")
    (silent,), (returned,) = first.records("silent"), first.records("returned")
    assert (silent["ranks"], silent["host"], silent["cause"]) == ([1], "b", "stopped")
    assert (returned["rank"], returned["host"]) == (1, "b")
    assert returned["seconds"] > silent["seconds"]
    (noticed,) = second.records("noticed")
    assert noticed["message"].startswith("this process did not run for ")


@pytest.mark.long
def test_a_killed_process_is_named_once_on_each_host(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    with training(tiny_corpus, tmp_path / "run", ["a", "b", "a", "c"]) as (first, second, third, fourth):
        first.wait_for("step 6/")
        second.signal(signal.SIGKILL)
        survivors = (first, third, fourth)
        assert [process.finish() for process in survivors] == [75, 75, 75]
    words = "rank 1 on b has ended (it was killed, or it has crashed)"
    said = [process.said("tandem: ") for process in survivors]
    assert [len(lines) for lines in said] == [1, 0, 1]
    for (sentence,) in filter(None, said):
        assert sentence.startswith(f"tandem: {words}; the state after step ")
    for process in survivors:
        assert [record["reason"] for record in process.records("ended")] == [f"failed: {words}"]
        assert not any("gloo" in line or "Traceback" in line for line in process.lines)


@pytest.mark.long
def test_after_patience_all_end_while_their_main_threads_wait(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    with training(tiny_corpus, tmp_path / "run", ["a", "b"], "cluster.patience_seconds=1") as (first, second):
        first.wait_for("step 6/")
        second.signal(signal.SIGSTOP)
        assert first.finish() == 75
    (sentence,) = first.said("tandem: ")
    assert sentence.startswith("tandem: rank 1 on b does not answer since ")
    assert "the process does not run, although its host answers; the state after step" in sentence
    (ended,) = first.records("ended")
    assert ended["reason"].startswith("failed: rank 1 on b does not answer since ")


@pytest.mark.long
def test_a_process_whose_corpus_hangs_is_named_with_its_stack(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """Its shards are on a disk that answers no more: here a pipe, which a thread of the process reads at a step."""
    pipe = tmp_path / "disk"
    os.mkfifo(pipe)
    with training(tiny_corpus, tmp_path / "run", ["a", "b"], hanging=(1, pipe)) as (first, second):
        line = first.wait_for("rank 1 on b: in data for ")
        assert line.endswith(" s while others wait for it; its stack is in journal/rank-1.stack there")
        second.wait_for("tandem: rank 1 on b: in data for ")
        with pipe.open("w"):
            pass
        first.wait_for("rank 1 on b goes on after ")
    assert "fetch" in (tmp_path / "run" / "journal" / "rank-1.stack").read_text()
