"""Views by name: one from outside of the package sees every record of a training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import RunPaths
from tandem.monitor.background_view import open_views
from tandem.monitor.network_interfaces import host_name
from tandem.training.run_directory import create_or_check
from testbed.journals import read_journal
from tests import warm
from tests.conftest import TINY
from tests.extending_examples import write_examples


def train(corpus: PreparedCorpus, run: Path, plug_ins: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    places = ["--corpus", str(corpus.directory), "--run", str(run)]
    path = os.pathsep.join(filter(None, [str(plug_ins), os.environ.get("PYTHONPATH")]))
    return warm.run(
        [sys.executable, "-m", "tandem", "train", "demo", *places, *TINY, *settings],
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.slow
def test_a_view_from_outside_sees_every_record(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    write_examples(tmp_path)
    run = tmp_path / "run"
    done = train(tiny_corpus, run, tmp_path, "train.max_steps=4", "monitor.views=[tensorboard, my_views:JsonView]")
    assert done.returncode == 0, done.stderr
    max_steps, *seen, closed = map(json.loads, (run / "seen.json").read_text().splitlines())
    assert (max_steps, closed) == (4, "closed")
    journal = [{**record} for record in read_journal(run / "journal/rank-0.jsonl")]
    for record in journal:
        del record["time"]
    assert seen == journal
    assert {record["kind"] for record in seen} >= {"started", "progressed", "evaluated", "saved", "ended"}
    assert any((run / "tensorboard").iterdir())


@pytest.mark.slow
def test_views_that_raise_do_not_end_the_training(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(
        "from tandem.monitor.views import View\n"
        "class NotMade(View):\n"
        "    def __init__(self, run, config): raise RuntimeError('no login')\n"
        "class NotShown(View):\n"
        "    def __init__(self, run, config): pass\n"
        "    def show(self, record): raise OSError(28, 'No space left on device')\n"
    )
    settings = ("train.max_steps=4", "monitor.views=[faulty:NotMade, faulty:NotShown, tensorboard]")
    done = train(tiny_corpus, tmp_path / "run", tmp_path, *settings)
    assert done.returncode == 0, done.stderr
    journal = list(read_journal(tmp_path / "run/journal/rank-0.jsonl"))
    said = [record["message"] for record in journal if record["kind"] == "noticed"]
    off = "and is switched off; the training goes on without it"
    assert sorted(line for line in said if "view" in line) == [
        f"the view faulty:NotMade failed (RuntimeError: no login) {off}",
        f"the view faulty:NotShown failed ({host_name()}: the disk is full) {off}",
    ]
    assert all(f"note: {line}" in done.stdout for line in said)
    assert journal[-1]["reason"] == "finished"
    assert any((tmp_path / "run/tensorboard").iterdir())


def test_a_view_that_cannot_be_imported_is_named_without_a_traceback(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    done = train(tiny_corpus, tmp_path / "run", tmp_path, "monitor.views=[absent:View]")
    assert done.returncode == 2
    assert "absent:View: this view cannot be imported" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_means_nothing_is_a_fault_of_the_settings() -> None:
    known = "'tensorboard', 'wandb' or 'mlflow'"
    with pytest.raises(TandemError, match=re.escape(f"monitor.views.#1: should be {known}, or one of your own")):
        Config.load("demo", ["monitor.views=[aim]"])


def test_views_that_are_not_there_are_faults_of_the_settings_together() -> None:
    with pytest.raises(TandemError, match=r"^3 faults") as caught:
        Config.load("demo", ["monitor.views=[absent:View,json:Absent]", "train.max_stps=3"])
    assert "monitor.views: absent:View: this view cannot be imported (No module" in str(caught.value)
    assert "monitor.views: json:Absent: there is no such view (module 'json' has no attribute" in str(caught.value)


def test_what_is_no_view_is_refused() -> None:
    with pytest.raises(TandemError, match=r"monitor.views: json:JSONDecoder: a type, not a view \(it has no show\)"):
        Config.load("demo", ["monitor.views=[json:JSONDecoder]"])


def test_a_run_without_views(tmp_path: Path) -> None:
    assert open_views(RunPaths(tmp_path), Config.load("demo", ["monitor.views=[]"])) == []
    (view,) = open_views(RunPaths(tmp_path), Config())
    view.close()
    assert view.pop_trouble() == ""


def test_runs_from_before_there_were_views_go_on_and_views_may_change(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    config = Config.load("demo", TINY)
    create_or_check(tmp_path, config, tiny_corpus, change=False)
    saved = RunPaths(tmp_path).config_file
    old, _, views = saved.read_text().partition("monitor:\n")
    assert views
    saved.write_text(old)
    assert Config.load_saved(saved).monitor.views == ["tensorboard"]
    for views in ("[tensorboard]", "[]", "[tandem.monitor.views:View]"):
        assert (
            create_or_check(tmp_path, Config.load("demo", [*TINY, f"monitor.views={views}"]), tiny_corpus, change=False)
            == []
        )
