"""Several dev sets: each is measured, one metric on one of them chooses the best, and stopping changes nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tandem.config import Config, CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tandem.metrics import Criterion
from tandem.scoring import metric_score
from tandem.training.checkpoints.checkpoint_store import CheckpointStore
from tandem.training.checkpoints.merits import Merits
from tandem.training.evaluate import check_measures, measured_dev_sets, measured_metrics
from tandem.training.loop import train
from tandem.training.train_state import TrainingProgress
from testbed.journals import read_journal
from tests.training.processes import run_training, signal_training_when

Make = Callable[..., Config]
MEASURES = ("evaluation.metrics=[chrf,ter]", "checkpoint.best_by=other/loss", "evaluation.samples=20")


@pytest.fixture(scope="module")
def corpus(demo_text: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """The demo text with two dev sets."""
    train, dev, test = ((demo_text / f"{split}.en", demo_text / f"{split}.de") for split in ("train", "dev", "test"))
    texts = CorpusTexts([train], dev, dev_sets={"other": test})
    return prepare(texts, tmp_path_factory.mktemp("two") / "corpus", CorpusConfig(vocab_size=600))


@pytest.fixture(scope="module")
def undisturbed(corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    ended = run_training(corpus, run, *MEASURES)
    assert ended.returncode == 0, ended.stderr
    assert "step 12: dev BLEU" in ended.stdout
    assert "step 12: other BLEU" in ended.stdout
    assert "other chrF2 " in ended.stdout
    assert ended.stdout.count("TER is nrefs:1|case:lc|tok:tercom") == 1
    assert "; best other loss " in ended.stdout
    return run


def evaluations(run: Path) -> list[dict[str, Any]]:
    """The evaluations in a journal; of those made again the later ones."""
    found = {
        (record["step"], record["split"]): {**record, "seconds": None, "time": None}
        for record in read_journal(run / "journal/rank-0.jsonl")
        if record["kind"] == "evaluated"
    }
    return list(found.values())


def numbers(run: Path) -> Any:
    return json.loads((run / "checkpoints/step-00000012/state.json").read_text())["numbers"]


@pytest.mark.slow
def test_each_is_measured_with_each_metric(undisturbed: Path, corpus: PreparedCorpus) -> None:
    found = evaluations(undisturbed)
    assert [(one["step"], one["split"]) for one in found] == [(6, "dev"), (6, "other"), (12, "dev"), (12, "other")]
    for one in found:
        references = corpus.text(one["split"])[1]
        hypotheses = [sample["hypothesis"] for sample in one["samples"]]
        assert len(hypotheses) == len(references)
        assert [metric["metric"] for metric in one["metrics"]] == ["chrf", "ter"]
        for metric in one["metrics"]:
            assert (metric["value"], metric["signature"]) == metric_score(metric["metric"], hypotheses, references)


@pytest.mark.slow
def test_the_best_checkpoint_is_chosen_by_the_metric_that_was_asked_for(undisturbed: Path) -> None:
    losses = {one["step"]: one["eval_loss"] for one in evaluations(undisturbed) if one["split"] == "other"}
    expected = min(losses, key=lambda step: losses[step])
    (best,) = CheckpointStore(undisturbed).best()
    assert best.step == expected
    assert best.merits.values["other/loss"] == losses[expected]
    assert best.merits.best_by == Criterion("other", "loss")
    assert set(best.merits.values) == {f"{name}/{metric}" for name in ("dev", "other") for metric in MEASURED}
    ended = list(read_journal(undisturbed / "journal/rank-0.jsonl"))[-1]
    assert (ended["best_by"], ended["best_value"], ended["best_step"]) == ("other/loss", losses[expected], expected)


MEASURED = ("loss", "bleu", "chrf", "ter")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["step 6: dev BLEU", "step 6: other BLEU"])
def test_killed_between_two_dev_sets_a_run_ends_as_one_left_alone(
    line: str, undisturbed: Path, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    signal_training_when(line, signal.SIGKILL, corpus, run, *MEASURES)
    assert run_training(corpus, run, *MEASURES).returncode == 0
    assert evaluations(run) == evaluations(undisturbed)
    assert numbers(run) == numbers(undisturbed)


@pytest.mark.slow
def test_two_processes_measure_alike(undisturbed: Path, corpus: PreparedCorpus, tmp_path: Path) -> None:
    ended = run_training(corpus, tmp_path / "run", *MEASURES, processes=2)
    assert ended.returncode == 0, ended.stderr
    for left, right in zip(evaluations(undisturbed), evaluations(tmp_path / "run"), strict=True):
        assert left["eval_loss"] == pytest.approx(right["eval_loss"], rel=1e-5)
        for kept in ("split", "bleu", "samples", "metrics"):
            assert left[kept] == right[kept]


@pytest.mark.slow
def test_patience_and_a_change_of_what_counts(corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> None:
    """With next to no learning rate nothing gets better; another metric has a first value once more."""
    still = (
        "schedule.peak=1e-12",
        "evaluation.every_steps=1",
        "evaluation.patience=3",
        "checkpoint.best_by=other/chrf",
    )
    ended = train(tiny_config(*still), corpus.directory, tmp_path / "run", [])
    assert (ended.step, ended.reason, ended.best_step, ended.best_by) == (4, "stopped early", 1, "other/chrf")
    changed = tiny_config(*still, "checkpoint.best_by=ter")
    ended = train(changed, corpus.directory, tmp_path / "run", [])
    assert ended.reason == "stopped early"
    assert ended.best_by == "other/chrf", "nothing was left to do"
    longer = tiny_config(*still, "checkpoint.best_by=ter", "evaluation.patience=4")
    ended = train(longer, corpus.directory, tmp_path / "run", [])
    assert (ended.step, ended.best_step, ended.best_by) == (9, 5, "dev/ter")
    assert [best.step for best in CheckpointStore(tmp_path / "run").best()] == [5]


def test_the_best_so_far_stays_the_one_to_beat_if_another_metric_counts() -> None:
    """As among the checkpoints in best/, which all carry every metric that was taken."""
    progress = TrainingProgress(step=4)
    progress.note_evaluation(Merits({"dev/bleu": 20.0, "dev/loss": 2.0, "dev/ter": 70.0}))
    progress = TypeAdapter(TrainingProgress).validate_json(json.dumps(asdict(progress)), strict=True)
    progress.step = 8
    by_loss = Criterion.parse("loss")
    progress.note_evaluation(Merits({"dev/bleu": 21.0, "dev/loss": 2.1}, by_loss))
    assert (progress.best_step, progress.best_by, progress.best_value) == (4, "dev/loss", 2.0)
    assert progress.evaluations_without_gain == 1
    progress.step = 12
    progress.note_evaluation(Merits({"dev/bleu": 19.0, "dev/loss": 1.9}, by_loss))
    assert (progress.best_step, progress.best_value, progress.best_bleu) == (12, 1.9, 19.0)
    progress.step = 16
    progress.note_evaluation(Merits({"dev/bleu": 5.0, "dev/chrf": 1.0}, Criterion.parse("chrf")))
    assert (progress.best_step, progress.best_value) == (16, 1.0), "nothing was known of this metric"


def test_settings_choose_what_is_measured(corpus: PreparedCorpus, tiny_config: Make) -> None:
    assert measured_dev_sets(tiny_config(), corpus) == ["dev", "other"]
    assert measured_dev_sets(tiny_config("evaluation.dev_sets=[]"), corpus) == ["dev"]
    chosen = tiny_config("checkpoint.best_by=other/chrf")
    assert measured_metrics(chosen, "dev") == []
    assert measured_metrics(chosen, "other") == ["chrf"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("evaluation.dev_sets=[news]", "has no dev set news; it has dev, other"),
        ("checkpoint.best_by=news/bleu", "checkpoint.best_by: .* has no dev set news; it has dev, other"),
    ],
)
def test_a_dev_set_that_is_not_there_is_refused_and_nothing_is_left(
    setting: str, said: str, corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    with pytest.raises(TandemError, match=said):
        check_measures(tiny_config(setting), corpus)
    with pytest.raises(TandemError, match=said):
        train(tiny_config(setting), corpus.directory, tmp_path / "run", [])
    assert not (tmp_path / "run").exists()


def test_states_of_older_versions_are_read() -> None:
    old = {"step": 8, "target_tokens": 9, "best_bleu": 12.5, "best_step": 4, "evaluations_without_gain": 1, "parts": 1}
    progress = TypeAdapter(TrainingProgress).validate_json(json.dumps(old), strict=True)
    assert (progress.best_by, progress.best_value, progress.best_partial) == ("dev/bleu", 12.5, [])
    progress.note_evaluation(Merits.of_bleu(12.0))
    assert (progress.best_step, progress.evaluations_without_gain) == (4, 2)
    progress.note_evaluation(Merits.of_bleu(13.0))
    assert (progress.best_step, progress.best_bleu, progress.evaluations_without_gain) == (8, 13.0, 0)
    assert Merits.read({"bleu": 12.5}).rank(Criterion.parse("bleu")) == (True, 12.5)
    assert Merits.read({}).dev_bleu is None
    kept = Merits({"dev/bleu": 1.0, "news/ter": 70.0}, Criterion("news", "ter"), ("dev",))
    assert Merits.read(json.loads(json.dumps(kept.as_facts()))) == kept
