"""A model with something to say, for the tests of the search."""

from __future__ import annotations

import pytest

from tandem.model.transformer import Transformer
from tests.model.models import trained_model


@pytest.fixture(scope="session")
def half_trained() -> Transformer:
    """Vocabulary of 8: four ordinary pieces; in evaluation mode and float64. Not to be changed."""
    return trained_model(vocab_size=8, steps=80)
