"""Whatever is in a file, its reader ends with a result or with one clear error; `bench/fuzz.py` looks for longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from testbed.fuzzing.targets import NAMES, Target, make_targets

INPUTS = 60


@pytest.fixture(scope="module")
def targets(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return make_targets(trained, tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", NAMES)
def test_damaged_input_is_read_or_refused(name: str, targets: dict[str, Target]) -> None:
    @settings(max_examples=INPUTS, suppress_health_check=list(HealthCheck))
    @given(targets[name].inputs)
    def try_one(drawn: object) -> None:
        targets[name].check(drawn)

    try_one()
