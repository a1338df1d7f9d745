"""Killed and continued on cards: the same bits, where deterministic algorithms were asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import WITH_DROPOUT, Device, records, run_ranks, started_ranks, succeeded, training

pytestmark = pytest.mark.slow

SETTINGS = (*WITH_DROPOUT, "train.deterministic=true", "train.max_steps=12", "train.log_every=2")


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_killed_run_ends_with_the_bits_of_one_left_alone(
    ranks: int, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    hosts = ["one"] * ranks
    killed, alone = (training(tiny_corpus, tmp_path / name, *SETTINGS) for name in ("killed", "alone"))
    with started_ranks(hosts, Device(cards=ranks), *killed) as processes:
        assert processes[0].stdout is not None
        # The checkpoint of step 6 may or may not be whole: that of step 3 is.
        assert any(line.startswith("step 6/12") for line in processes[0].stdout)
    observed = Device(cards=ranks, module="observed")
    succeeded(*run_ranks(hosts, observed, str(tmp_path), "--", *killed))
    succeeded(*run_ranks(hosts, Device(cards=ranks), *alone))
    assert len(records(tmp_path / "killed", "started")) == 2
    for file in ("model.safetensors", "optimizer.safetensors"):
        left, right = (tmp_path / name / "checkpoints/step-00000012" / file for name in ("killed", "alone"))
        assert left.read_bytes() == right.read_bytes()
    steps = json.loads((tmp_path / "steps-0.json").read_text())
    assert steps[0]["step"] in (4, 7)
    # The device refuses operators without a deterministic kernel, and products without a fixed workspace.
    assert all(step["settings"]["deterministic"] and step["settings"]["cublas"] == ":4096:8" for step in steps)
    assert records(tmp_path / "killed", "started")[0]["deterministic"]
