"""Gradients that are not finite, on a card: found a step late, with the right name, and nothing spoilt."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import EXACT, Device, journal, one_sentence, run, run_ranks, succeeded, training, weights

pytestmark = pytest.mark.slow

DEVICES = {"card": Device(), "processor": None}
EXPLODING = (
    "schedule.peak=1e30",
    "schedule.warmup_steps=1",
    "optimizer.clip_norm=",
    "train.max_steps=20",
    "divergence.skip_steps=0",
)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_newest_checkpoint_is_that_of_the_last_good_step(
    precision: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    # So large an epsilon that gradients which are zero but for rounding do not explode.
    settings = (
        *EXACT,
        f"train.precision={precision}",
        *EXPLODING,
        "checkpoint.every_steps=1",
        "optimizer.epsilon=1e-3",
    )
    told = [run(device, *training(tiny_corpus, tmp_path / name, *settings)) for name, device in DEVICES.items()]
    sentences = [one_sentence([each]) for each in told]
    step = int(sentences[0].removeprefix("tandem: step ").split(":")[0])
    for sentence, name in zip(sentences, DEVICES, strict=True):
        assert sentence.startswith(f"tandem: step {step}: the gradient is not finite")
        assert sentence.endswith(f"the checkpoint of step {step - 1} is untouched")
        assert sorted(path.name for path in (tmp_path / name / "checkpoints").iterdir())[-1].endswith(f"{step - 1}")
        assert journal(tmp_path / name)[-1]["reason"].startswith(f"failed: step {step}: ")
    good, same = (weights(tmp_path / name, step - 1) for name in DEVICES)
    for name, tensor in good.items():
        assert bool(tensor.isfinite().all())
        if precision == "float32":
            torch.testing.assert_close(tensor, same[name], rtol=1e-3, atol=1e26)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_step_late_and_by_its_own_name(ranks: int, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """Three good steps, one that spoils the weights, one whose gradient shows it: known while the sixth is taken."""
    hosts, device = ["one"] * ranks, Device(cards=ranks)
    settings = (*EXACT, "train.max_steps=3")
    succeeded(*run_ranks(hosts, device, *training(tiny_corpus, tmp_path / "run", *settings)))
    late = (*EXACT, *EXPLODING, "checkpoint.every_steps=100", "train.log_every=100")
    observed = Device(cards=ranks, module="observed")
    arguments = (*training(tiny_corpus, tmp_path / "run", *late), "--change")
    sentence = one_sentence(run_ranks(hosts, observed, str(tmp_path), "--", *arguments))
    assert sentence.startswith("tandem: step 5: the gradient is not finite")
    assert sentence.endswith("the checkpoint of step 3 is untouched")
    for rank in range(ranks):
        last = journal(tmp_path / "run", rank)[-1]
        assert last["reason"].startswith("failed: step 5: the gradient is not finite")
        assert last["step"] == 4
    # And the run can go on from there.
    succeeded(*run_ranks(hosts, device, *training(tiny_corpus, tmp_path / "run", *EXACT), "--change"))
    assert all(bool(tensor.isfinite().all()) for tensor in weights(tmp_path / "run", 6).values())
