"""oneDNN keeps few of the kernels that it compiles, so that a training's memory does not grow with its shapes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tandem.kernel_cache import CAPACITIES, LAYER_KERNELS, limit_kernel_cache

MEASURE = """
import sys
import psutil, torch
from tandem.kernel_cache import limit_kernel_cache
if sys.argv[1] == "limited":
    limit_kernel_cache(1)
torch.set_num_threads(1)
left, right = torch.ones(600, 64).bfloat16(), torch.ones(64, 64).bfloat16()
left @ right
before = psutil.Process().memory_info().rss
for rows in range(1, 600):
    left[:rows] @ right
print(psutil.Process().memory_info().rss - before)
"""


def growth(how: str) -> int:
    """Bytes that six hundred shapes have left behind."""
    environment = {name: value for name, value in os.environ.items() if name not in CAPACITIES}
    command = [sys.executable, "-c", MEASURE, how]
    return int(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_shapes() -> None:
    unlimited = growth("unlimited")
    if unlimited < 100e6:
        pytest.skip("this processor's products in half precision keep no kernels")
    assert growth("limited") < unlimited / 4


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = CAPACITIES
    monkeypatch.setenv(mine, "7")
    monkeypatch.setenv(other, "0")
    monkeypatch.delenv(other)
    limit_kernel_cache(2)
    assert (os.environ[mine], os.environ[other]) == ("7", str(2 * LAYER_KERNELS))
