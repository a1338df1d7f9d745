"""The limit of memory that a process's control groups set: of both versions, and of the groups around its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.cluster import control_groups
from tandem.cluster.control_groups import memory_limit


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/job/step", {"job/memory.max": "8000", "job/step/memory.max": "max"}, 8000),
        ("0::/job/step", {"job/memory.max": "8000", "job/step/memory.max": "5000"}, 5000),
        ("0::/", {"memory.max": "7000"}, 7000),
        ("4:cpu,cpuacct:/box\n3:memory:/box", {"memory/box/memory.limit_in_bytes": "6000"}, 6000),
        ("0::/job", {"job/memory.max": "max"}, None),
        ("0::/job", {}, None),
    ],
)
def test_the_tightest_limit_counts(
    groups: str, files: dict[str, str], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    own = tmp_path / "own"
    own.write_text(groups)
    monkeypatch.setattr(control_groups, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "OWN_GROUPS", own)
    assert memory_limit() == expected
