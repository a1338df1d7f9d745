"""Steps for their time alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.training.batches import Batches
from tandem.training.startup.calibration import FEWEST_STEPS, MOST_STEPS, Calibration, calibrate


def test_together_waits_for_the_slowest_of_each_step_and_apart_for_that_of_all() -> None:
    uneven = Calibration(((1.0, 2.0, 3.0), (3.0, 2.0, 2.0)), {}, worked_out=False)
    assert uneven.together_seconds == pytest.approx((3 + 2 + 3) / 3)
    assert uneven.apart_seconds == pytest.approx(7 / 3)


@pytest.mark.slow
def test_whole_steps_where_there_is_time(tiny_config: Callable[..., Config], tiny_corpus: PreparedCorpus) -> None:
    config = tiny_config()
    alone = World(0, 1, torch.device("cpu"))
    calibration = calibrate(
        config, alone, Batches.of_run(config, tiny_corpus.pairs("train")), tiny_corpus.tokenizer.vocab_size, 3600.0
    )
    assert not calibration.worked_out
    assert FEWEST_STEPS <= len(calibration.step_seconds[0]) <= MOST_STEPS
    # The parts of a step make the whole of it.
    assert sum(calibration.parts.values()) == pytest.approx(calibration.apart_seconds, rel=0.1)
    assert min(calibration.parts[part] for part in ("data", "compute", "optimizer")) > 0


def test_parts_of_a_step_where_there_is_none(tiny_config: Callable[..., Config], tiny_corpus: PreparedCorpus) -> None:
    config = tiny_config()
    alone = World(0, 1, torch.device("cpu"))
    calibration = calibrate(
        config, alone, Batches.of_run(config, tiny_corpus.pairs("train")), tiny_corpus.tokenizer.vocab_size, 0.0
    )
    assert calibration.worked_out
    assert calibration.parts == {}
    assert calibration.together_seconds == calibration.apart_seconds > 0
