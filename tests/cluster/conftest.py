"""Several hosts on one machine, where that is possible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.network_rig import Rig, Ssh, mpirun_unavailable, unavailable


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Hosts vm1 and vm2 with a cable between them."""
    if reason := unavailable():
        pytest.skip(reason)
    with Rig() as hosts:
        yield hosts


@pytest.fixture(scope="module")
def rig_ssh(rig: Rig) -> Ssh:
    """ssh servers on both hosts."""
    if reason := mpirun_unavailable():
        pytest.skip(reason)
    return rig.serve_ssh()
