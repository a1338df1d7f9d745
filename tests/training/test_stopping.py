"""A training that is asked to stop, or loses a process: what is saved, how it ends, and that it goes on bit for bit."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from unittest.mock import Mock

import pytest

from tandem.cluster.join.launchers import kills_after_a_second, started_by_launcher
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, checkpoint_directories
from tandem.process_exit import LOST_PEER_CODE, STOP_SIGNALS, stop_code
from tandem.training.checkpoints.checkpoint import read
from tandem.training.faults import stopping
from tandem.training.faults.preemption_notice import preemption_command
from tandem.training.faults.stopping import MOST_VOTES, vote_for, voted_signal
from tandem.training.train_state import TrainingProgress
from testbed.journals import read_journal
from tests.cluster.ranks import rank_environments
from tests.training.processes import read_until, run_training, started_ranks, train_command
from tests.warm import WarmProcess

# Enough of them that a signal which comes some steps late does not find the run at its end.
STEPS = 30
LONGER = f"train.max_steps={STEPS}"
# A log line a step to go by, and no checkpoint but those that stops and losses make.
WATCHED = (LONGER, "train.log_every=1", "checkpoint.every_steps=100")
TOGETHER = ("one", "one")


def newest(run: Path) -> int:
    return max(checkpoint_directories(run / "checkpoints"))


def assert_same_end(left: Path, right: Path) -> None:
    ends = [run / f"checkpoints/step-{STEPS:08d}" for run in (left, right)]
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        assert (ends[0] / name).read_bytes() == (ends[1] / name).read_bytes(), name
    numbers = [json.loads((end / STATE_FILE).read_text())["numbers"] for end in ends]
    assert numbers[0] == numbers[1]


# --- small parts


@pytest.mark.parametrize("number", STOP_SIGNALS)
@pytest.mark.parametrize("processes", [1, 2, MOST_VOTES - 1])
def test_a_sum_of_votes_tells_the_signal(number: signal.Signals, processes: int) -> None:
    assert voted_signal(sum(vote_for(number) for _ in range(processes)) + vote_for(None)) == number


def test_any_of_several_signals_is_told() -> None:
    assert voted_signal(0.0) is None
    assert voted_signal(vote_for(signal.SIGTERM) + vote_for(signal.SIGHUP)) in (signal.SIGTERM, signal.SIGHUP)


def test_a_notice_command_is_taken_apart_without_a_shell() -> None:
    assert preemption_command("sh -c 'until test -e /x; do sleep 5; done'") == [
        *("sh", "-c"),
        "until test -e /x; do sleep 5; done",
    ]
    assert preemption_command(["sh", "a b"]) == ["sh", "a b"]
    assert preemption_command(None) is None
    for wrong in ("no-such-program --wait", "sh -c 'open", ""):
        with pytest.raises(TandemError, match="on_preemption_notice"):
            preemption_command(wrong)


def test_launchers_are_no_persons() -> None:
    ranks = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    assert (started_by_launcher(ranks), kills_after_a_second(ranks)) == (True, True)
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0"}
    assert (started_by_launcher(slurm), kills_after_a_second(slurm)) == (True, False)
    assert not started_by_launcher({"SLURM_JOB_ID": "7"})


class EndedError(Exception):
    """Stands for the end of the process."""


def said_at_the_end(checkpoint_left: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The last sentence of a training that is ended at once."""
    said = []

    def end_by(number: int, sentence: str) -> NoReturn:
        said.append(sentence)
        raise EndedError

    monkeypatch.setattr(stopping, "end_by", end_by)
    monkeypatch.setattr(stopping, "LAST_LINES_SECONDS", 0.2)
    trainer = Mock(checkpoint_left=checkpoint_left, world=Mock(size=1), state=Mock(progress=TrainingProgress()))
    with pytest.raises(EndedError):
        stopping.end_at_once(trainer, signal.SIGTERM)
    return said[0]


def test_the_end_tells_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_at_the_end(lambda: "step 7 is saved", monkeypatch) == "stopped by SIGTERM; step 7 is saved"


@pytest.mark.parametrize("disk", ["hangs", "fails"])
def test_a_disk_that_does_not_answer_keeps_nobody_from_ending(disk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look() -> str:
        if disk == "fails":
            raise OSError(errno.EIO, "Input/output error")
        over.wait()
        return ""

    said = said_at_the_end(look, monkeypatch)
    over.set()
    assert said == "stopped by SIGTERM; the same command goes on from the newest checkpoint"


# --- one process


@pytest.mark.slow
def test_stopped_by_every_signal_a_run_ends_with_the_same_bits(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    assert run_training(tiny_corpus, undisturbed, LONGER).returncode == 0
    for step, number in zip((2, 5, 8), (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT), strict=True):
        command = train_command(tiny_corpus, run, *WATCHED)
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue  # these tests run under nohup
        with WarmProcess(command, stdout=subprocess.PIPE) as process:
            read_until(f"step {step}/", process)
            process.send_signal(number)
            said = process.communicate()[0]
        assert process.returncode == stop_code(number)
        ended = list(read_journal(run / "journal/rank-0.jsonl"))[-1]
        assert (ended["reason"], ended["signal"], ended["step"]) == ("stopped on request", number.name, newest(run))
        # Saved before anything is said.
        last = said.splitlines()[-1]
        assert last.startswith(f"stopped on request ({number.name}) at step ")
        assert last.endswith("; the same command continues the run")
    # A reader who has seen enough of its output (`| head`) does not end a training.
    with WarmProcess(train_command(tiny_corpus, run, *WATCHED), stdout=subprocess.PIPE) as process:
        read_until("step ", process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 0
    assert_same_end(undisturbed, run)


@pytest.mark.slow
def test_a_terminal_that_nobody_reads_holds_up_neither_steps_nor_the_end(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while True:
            os.write(theirs, b"x" * 1024)
    os.set_blocking(theirs, True)
    endless = (*WATCHED, "train.max_steps=1000000")
    command = train_command(tiny_corpus, tmp_path / "run", *endless)
    waiting = "until grep -q '\"step\": 5,' " + str(tmp_path / "run/journal/rank-0.jsonl") + "; do sleep 0.1; done"
    notice = "train.on_preemption_notice=" + json.dumps(["sh", "-c", waiting])
    with WarmProcess([*command, notice], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        # The notice comes when the journal tells of a fifth step, and counts as a SIGUSR1: the run is to go on.
        assert process.wait() == stop_code(signal.SIGUSR1)
    os.close(ours)
    assert newest(tmp_path / "run") >= 5


# --- several processes


@pytest.mark.slow
def test_a_process_that_waits_for_others_to_come_is_stopped_at_once(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    environment = rank_environments(TOGETHER)[0]
    command = train_command(tiny_corpus, tmp_path / "run")
    with WarmProcess(command, env=environment, stderr=subprocess.PIPE) as process:
        while True:
            try:
                # Once the store takes connections the roll call has begun.
                socket.create_connection(("127.0.0.1", int(environment["MASTER_PORT"])), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[1] == "tandem: stopped by SIGTERM\n"
    assert process.returncode == stop_code(signal.SIGTERM)


@pytest.mark.long
def test_left_alone_again_and_again_a_run_ends_with_the_same_bits(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    with started_ranks([tiny_corpus] * 2, [undisturbed] * 2, TOGETHER, LONGER) as processes:
        assert [process.wait() for process in processes] == [0, 0]
    # The first process dies: the second one saves the last whole step.
    with started_ranks([tiny_corpus] * 2, [run] * 2, TOGETHER, *WATCHED) as (first, second):
        read_until("step 3/", first)
        first.kill()
        said = second.communicate()[1]
        step = newest(run)
        assert second.returncode == LOST_PEER_CODE
        assert said == (
            "tandem: rank 0 on one has ended (it was killed, or it has crashed); "
            f"the state after step {step} is saved, and the same command goes on from there\n"
        )
    assert step >= 3
    # The second one hangs when an evaluation is due, and the first is asked to stop: it cannot wait for ever.
    hasty = (*WATCHED, "train.stop_seconds=10", f"checkpoint.mirror={tmp_path / 'place'}")
    with started_ranks([tiny_corpus] * 2, [run] * 2, TOGETHER, *hasty) as (first, second):
        read_until("step 6/", first)
        second.send_signal(signal.SIGSTOP)
        first.send_signal(signal.SIGUSR1)
        assert "stopped by SIGUSR1 without the other processes; the state after step" in first.communicate()[1]
        assert first.returncode == stop_code(signal.SIGUSR1)
    assert newest(tmp_path / "place") == newest(run) >= 6
    # Asked again, it does not wait for the deadline.
    patient = (*WATCHED, "train.stop_seconds=100000")
    with started_ranks([tiny_corpus] * 2, [run] * 2, TOGETHER, *patient) as (first, second):
        read_until("step 9/", first)
        second.send_signal(signal.SIGSTOP)
        first.send_signal(signal.SIGTERM)
        while first.poll() is None:
            first.send_signal(signal.SIGTERM)
            try:
                first.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
        assert first.returncode == stop_code(signal.SIGTERM)
    assert newest(run) >= 9
    # One is asked to stop, both vote and end with the signal's code.
    with started_ranks([tiny_corpus] * 2, [run] * 2, TOGETHER, *WATCHED) as (first, second):
        read_until(f"step {newest(run) + 1}/", first)
        second.send_signal(signal.SIGHUP)
        assert [process.wait() for process in (first, second)] == [stop_code(signal.SIGHUP)] * 2
    with started_ranks([tiny_corpus] * 2, [run] * 2, TOGETHER, LONGER) as processes:
        assert [process.wait() for process in processes] == [0, 0]
    assert_same_end(undisturbed, run)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_what_is_saved_when_a_process_is_lost_is_copied_to_the_mirror(
    lost: int, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """Also by another process than the first, which has copied all until then."""
    run, place = tmp_path / "run", tmp_path / "place"
    settings = (*WATCHED, f"checkpoint.mirror={place}")
    with started_ranks([tiny_corpus] * 2, [run] * 2, TOGETHER, *settings) as ranks:
        read_until("step 3/", ranks[0])
        ranks[lost].kill()
        left = ranks[1 - lost]
        assert "is saved, and the same command goes on from there" in left.communicate()[1]
        assert left.returncode == LOST_PEER_CODE
    assert newest(place) == newest(run) >= 3
    read(place / f"checkpoints/step-{newest(run):08d}")  # every byte of it


@pytest.mark.slow
def test_a_stop_that_only_another_process_has_heard_is_told_by_the_first_one(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    settings = ("model.kind=tests.training.signalled_model:Signalled", "search.batch_sentences=1")
    with started_ranks([tiny_corpus] * 2, [tmp_path / "run"] * 2, ("a", "b"), *settings) as (first, second):
        said = first.communicate()[0].splitlines()
        assert (first.returncode, second.wait()) == (stop_code(signal.SIGUSR1),) * 2
    assert "note: stopping (SIGUSR1): this evaluation is broken off, and made when the run continues" in said
    # Saved before the rest is said.
    assert said[-3].startswith("saved ")
    assert said[-2] == "note: rank 1 on b was asked to stop; all have stopped together"
    assert said[-1].startswith("stopped on request (SIGUSR1) at step 6; ")


@pytest.mark.slow
def test_mpirun_leaves_no_time_to_vote(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """The last whole step is saved at once; what looks like a terminal gets plain lines."""
    ranks = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    ours, theirs = pty.openpty()
    command = train_command(tiny_corpus, tmp_path / "run", *WATCHED, "train.max_steps=1000000")
    with WarmProcess(command, env={**os.environ, **ranks}, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while b"step 3/" not in said:
            said += os.read(ours, 4096)
        process.send_signal(signal.SIGTERM)
        # A terminal whose other end is closed cannot be read any more.
        try:
            while True:
                said += os.read(ours, 4096)
        except OSError:
            os.close(ours)
    assert process.returncode == stop_code(signal.SIGTERM)
    assert b"\x1b" not in said
    assert len(checkpoint_directories(tmp_path / "run/checkpoints")) >= 1
