"""A process that dies: the other must not wait for its card, which never answers again, and says what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tandem.process_exit import LOST_PEER_CODE
from tests.gpu.machines import Device, journal, started_ranks, training

pytestmark = pytest.mark.slow

ENDED = "rank {rank} on {host} has ended (it was killed, or it has crashed)"


@pytest.mark.parametrize(
    ("victim", "hosts", "settings"),
    [
        (1, ("one", "one"), ("exchange.kind=allreduce",)),
        pytest.param(0, ("one", "one"), ("exchange.kind=allreduce",), marks=pytest.mark.long),
        pytest.param(1, ("one", "two"), ("exchange.kind=bf16",), marks=pytest.mark.long),
        pytest.param(
            *(0, ("one", "two"), ("exchange.kind=diloco", "exchange.local_steps=4", "exchange.start_steps=0")),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_survivor_says_so(
    victim: int, hosts: tuple[str, ...], settings: tuple[str, ...], tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    endless = ("train.max_steps=100000", "train.log_every=4", "checkpoint.every_steps=100000", *settings)
    with started_ranks(hosts, Device(cards=2), *training(tiny_corpus, tmp_path, *endless)) as processes:
        assert processes[0].stdout is not None
        assert any(line.startswith("step 8/") for line in processes[0].stdout), processes[0].communicate()
        processes[victim].kill()
        survivor = processes[1 - victim]
        _, said = survivor.communicate(timeout=120)
        # On a device that never answers, waiting would have been a HungDeviceError.
        lost = ENDED.format(rank=victim, host=hosts[victim])
        assert survivor.returncode == LOST_PEER_CODE
        assert said.startswith(f"tandem: {lost}; ")
        assert said.count("\n") == 1
    last = journal(tmp_path, 1 - victim)[-1]
    assert last["kind"] == "ended"
    assert last["reason"] == f"failed: {lost}"
