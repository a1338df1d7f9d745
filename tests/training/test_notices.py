"""Notices of one process of many: in its own journal, and on the first process's terminal."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from tandem.monitor.journal import Journal, Recorder
from tandem.training.trainer import Trainer
from testbed.journals import read_journal


@pytest.mark.parametrize(("rank", "relayed"), [(0, []), (1, ["rank 1 on b: no heartbeats"])])
def test_what_one_process_knows_is_shown_by_the_first(rank: int, relayed: list[str], tmp_path: Path) -> None:
    recorder = Recorder(Journal(tmp_path, rank))
    trainer = Mock(spec=Trainer, recorder=recorder)
    trainer.world = Mock(rank=rank, is_leader=not rank, host=rank, host_names=["a", "b"])
    trainer.state = Mock(progress=Mock(step=7))
    trainer.notice = lambda message: Trainer.notice(trainer, message)
    Trainer.notice_of_this_process(trainer, "no heartbeats")
    (noticed,) = read_journal(tmp_path / f"rank-{rank}.jsonl")
    assert (noticed["step"], noticed["message"]) == (7, "no heartbeats")
    assert recorder.pop_troubles() == relayed
