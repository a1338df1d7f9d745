"""What the demo corpus holds, generated once for all its tests."""

from __future__ import annotations

import random

import pytest

from tandem.demo import DemoCorpus, Pair, generate
from tandem.demo.sentences import CONSTRUCTION_WEIGHTS, Speaker
from tandem.demo.toy_corpus import say


@pytest.fixture(scope="session")
def corpus() -> DemoCorpus:
    return generate()


@pytest.fixture(scope="session")
def corpus_of_seed_2() -> DemoCorpus:
    return generate(seed=2)


@pytest.fixture(scope="session")
def babble() -> list[Pair]:
    """What a speaker says when nothing is held back, every construction equally often."""
    speaker = Speaker(random.Random(99))
    return [say(speaker, construction) for construction in CONSTRUCTION_WEIGHTS for _ in range(1000)]
