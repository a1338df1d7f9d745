"""Extensions from outside of the package: the examples of docs/extending.md as they stand, at the command line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from tests import warm
from tests.extending_examples import write_examples
from tests.training.processes import run_training, train_on_hosts

pytestmark = pytest.mark.slow


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of somebody's own modules that processes started here can import."""
    directory = tmp_path / "plug-ins"
    directory.mkdir()
    write_examples(directory)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]))
    return directory


def tandem(*arguments: str | Path) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "tandem", *map(str, arguments)]
    ended = warm.run(command, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def learning_rate_answer(run: Path) -> tuple[str, list[str]]:
    """What the report says about the learning rate, and the problems it lists."""
    report: dict[str, Any] = json.loads(tandem("report", run, "--json"))
    return json.dumps(next(each for each in report["questions"] if each["id"] == "learning_rate")), report["problems"]


def test_a_schedule(
    tiny_corpus: PreparedCorpus, plug_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    settings = ("schedule.kind=my_schedule:flat", "schedule.warmup_steps=4", "schedule.peak=2e-3", "train.log_every=1")
    ended = run_training(tiny_corpus, run, *settings, "train.max_steps=6")
    assert ended.returncode == 0, ended.stderr
    progress = [record for record in read_journal(run / "journal/rank-0.jsonl") if record["kind"] == "progressed"]
    assert [record["learning_rate"] for record in progress] == pytest.approx([5e-4, 1e-3, 1.5e-3, 2e-3, 2e-3, 2e-3])
    answer, problems = learning_rate_answer(run)
    assert "rises over 4 steps and stays at 0.002, whatever the loss does" in answer
    assert "as_configured" in answer
    assert problems == []
    # Its own check of the settings speaks like Tandem's.
    refused = run_training(tiny_corpus, run, *settings, "schedule.peak=")
    assert "schedule.peak: my_schedule:flat needs the highest learning rate" in refused.stderr
    # Where the plug-in is missing, training is refused, and the report says what it lacks.
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].partition(os.pathsep)[2])
    refused = run_training(tiny_corpus, run, *settings)
    assert "schedule.kind: my_schedule:flat: this schedule cannot be imported (No module" in refused.stderr
    _, problems = learning_rate_answer(run)
    assert "my_schedule:flat: this schedule cannot be imported" in problems[0]


def test_a_model(tiny_corpus: PreparedCorpus, plug_ins: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("model.kind=my_model:Recurrent", "model.d_model=33", "schedule.kind=inverse_sqrt")
    first = run_training(tiny_corpus, run, *settings, "train.max_steps=6", processes=2)
    assert first.returncode == 0, first.stderr
    resumed = run_training(tiny_corpus, run, *settings)
    assert resumed.returncode == 0, resumed.stderr
    assert "continuing after step 6" in resumed.stdout
    losses = [record["train_loss"] for record in read_journal(run / "journal/rank-0.jsonl") if "train_loss" in record]
    assert losses[-1] < losses[0]
    tandem("average", run)
    evaluated = json.loads(tandem("evaluate", run, "--checkpoint", "averaged", "--json"))
    assert evaluated["eval_loss"] < losses[0]
    lines = tandem("translate", run, "--json", "I see.", "A dog.").strip().split("\n")
    assert [json.loads(line)["source"] for line in lines] == ["I see.", "A dog."]
    refused = run_training(tiny_corpus, run)
    assert "was started with another model (model.kind was my_model:Recurrent, now transformer" in refused.stderr


def test_the_arithmetic_of_cards_is_for_the_transformer(plug_ins: Path) -> None:
    command = [sys.executable, "-m", "tandem", "doctor", "demo", "model.kind=my_model:Recurrent", "--card", "A100"]
    refused = warm.run(command, timeout=60)
    assert refused.returncode == 2
    assert refused.stderr.startswith("tandem: model.kind=my_model:Recurrent: the arithmetic of --card is about the tr")


@pytest.mark.long
def test_an_exchange_strategy(tiny_corpus: PreparedCorpus, plug_ins: Path, tmp_path: Path) -> None:
    """Two hosts, played by processes, exchange in eight bits, with error feedback that survives a restart."""
    runs, corpora, hosts = (tmp_path / "run", tmp_path / "run"), (tiny_corpus, tiny_corpus), ("a", "b")
    kind = "exchange.kind=eight_bits:STRATEGY"
    for settings in (("train.max_steps=4",), ()):
        for process in train_on_hosts(corpora, runs, hosts, kind, "schedule.kind=inverse_sqrt", *settings):
            assert process.returncode == 0, process.stderr
            assert "no memory" not in process.stdout
    records = list(read_journal(runs[0] / "journal/rank-0.jsonl"))
    assert [record["exchange"] for record in records if record["kind"] == "planned"] == ["eight_bits:STRATEGY"] * 2
    started = next(record for record in records if record["kind"] == "started")
    progressed = next(record for record in records if record["kind"] == "progressed")
    # Each of two hosts sends half of the vector twice, a little more than a byte a value; parts are rounded up.
    sent = progressed["exchanged_bytes"] / progressed["steps"] / started["parameters"]
    assert 1.0 < sent < 1.1
    assert "eight_bits:STRATEGY" in tandem("report", runs[0], "--json")
