"""A gradient that is not finite in a step that a host takes by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.training.processes import train_on_hosts

LOCAL = ("exchange.kind=diloco", "exchange.start_steps=0", "exchange.local_steps=8", "train.max_steps=16")
EXPLODING = ("schedule.peak=1e30", "schedule.warmup_steps=1", "optimizer.clip_norm=", "divergence.skip_steps=0")


@pytest.mark.slow
def test_all_hosts_hear_of_it_when_they_meet(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """No host may end alone, nor take the same step again and again, before the others have heard."""
    runs = (tmp_path / "one", tmp_path / "two")
    ended = train_on_hosts([tiny_corpus] * 2, runs, ("a", "b"), *LOCAL, *EXPLODING)
    assert [process.returncode for process in ended] == [2, 2]
    assert ended[0].stderr.startswith("tandem: step ")
    assert "not finite" in ended[0].stderr
    assert "lost the connection" not in ended[0].stderr + ended[1].stderr
