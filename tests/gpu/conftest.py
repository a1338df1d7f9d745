"""Tests of the GPU path run on the rehearsal device, which needs a C++ compiler."""

from __future__ import annotations

import pytest

from rehearsal.build import available


@pytest.fixture(autouse=True, scope="session")
def compiled() -> None:
    """Build the device's library once, or skip with the reason."""
    if (reason := available()) is not None:
        pytest.skip(reason)
