"""What a service was told survives the process; a damaged memory of it costs a new run there, no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.config import Config
from tandem.layout import RunPaths
from tandem.monitor.records import Evaluated, Progressed
from tandem.monitor.tracked_run import TrackedRun, settings_to_tell
from tests.monitor.example_records import example


def test_a_step_is_told_once_of_each_kind(tmp_path: Path) -> None:
    tracked = TrackedRun(tmp_path / "service.json")
    assert tracked.id is None
    tracked.begin("abc")
    tracked.note_told(example(Progressed, step=20))
    tracked.note_told(example(Progressed, step=10))
    again = TrackedRun(tmp_path / "service.json")
    assert again.id == "abc"
    news = [(kind, step) for kind in (Progressed, Evaluated) for step in (10, 20, 30)
            if again.is_new(example(kind, step=step))]  # fmt: skip
    assert news == [(Progressed, 30), (Evaluated, 10), (Evaluated, 20), (Evaluated, 30)]


def test_every_dev_set_of_a_step_is_told(tmp_path: Path) -> None:
    tracked = TrackedRun(tmp_path / "service.json")
    tracked.note_told(example(Evaluated, step=20, split="dev"))
    assert not tracked.is_new(example(Evaluated, step=20, split="dev"))
    assert tracked.is_new(example(Evaluated, step=20, split="news"))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"id": "a", "told": 3}', b'{"id": "a", "told": {"p": "x"}}']
)
def test_a_damaged_file_is_no_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "service.json").write_bytes(content)
    assert TrackedRun(tmp_path / "service.json").id is None


def test_a_mirror_has_it_too(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert {paths.told_file("wandb"), paths.told_file("mlflow")} <= set(paths.small_files())


def test_commands_of_the_user_are_not_told() -> None:
    settings = settings_to_tell(Config.load("demo", ["train.on_preemption_notice=wait --token abc"]))
    assert settings["train"]["max_steps"] == 450
    assert "abc" not in str(settings)
