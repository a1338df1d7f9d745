"""The loop: what a run leaves behind, what stops it, and what it refuses."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest
from safetensors.torch import load_file

from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE
from tandem.monitor.activity import ACTIVITY
from tandem.monitor.records import Ended, Evaluated, Noticed, Record, Saved
from tandem.monitor.views import View
from tandem.training import evaluate, loop, run_directory, trainer
from tandem.training.batches import GlobalBatch
from tandem.training.checkpoints.checkpoint import read
from tandem.training.faults.divergence import NonFiniteGradientError
from tandem.training.run_directory import locked
from testbed.journals import read_journal
from tests.training import processes

pytestmark = pytest.mark.slow

Make = Callable[..., Config]


class Collector(View):
    """A view that remembers."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def show(self, record: Record) -> None:
        self.records.append(record)


def train(config: Config, corpus: PreparedCorpus, run: Path, change: bool = False) -> tuple[Ended, Collector]:
    collector = Collector()
    return loop.train(config, corpus.directory, run, [collector], change=change), collector


@pytest.mark.slow
def test_what_a_run_leaves_behind(tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended, collector = train(tiny_config(), tiny_corpus, run)
    assert (ended.step, ended.reason) == (12, "finished")
    assert {path.name for path in run.iterdir()} == {
        *(
            "config.yaml",
            "run.json",
            "choices.json",
            "settled.json",
            "tokenizer.model",
            "checkpoints",
            "best",
            "journal",
            "tensorboard",
            ".lock",
        ),
    }
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000008", "step-00000012"]
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    # The run records the settings that its corpus was really made with.
    assert Config.load_saved(run / "config.yaml").corpus == tiny_corpus.facts.settings
    journal = list(read_journal(run / "journal/rank-0.jsonl"))
    shown = [record.as_dict() for record in collector.records]
    assert [{key: value for key, value in line.items() if key != "time"} for line in journal] == shown
    kinds = [line["kind"] for line in journal]
    assert kinds[0] == "started"
    assert kinds[-1] == "ended"
    assert kinds.count("progressed") == 6
    assert kinds.count("evaluated") == 2
    assert kinds.count("saved") == 3


@pytest.mark.slow
def test_the_journal_accounts_for_every_step_token_and_second(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    _, collector = train(tiny_config(), tiny_corpus, tmp_path / "run")
    progressed = [record.as_dict() for record in collector.records if record.kind == "progressed"]
    assert sum(record["steps"] for record in progressed) == 12
    saved = read(tmp_path / "run/checkpoints/step-00000012").state["numbers"]["progress"]
    assert sum(record["target_tokens"] for record in progressed) == saved["target_tokens"]
    for record in progressed:
        parts = record["seconds"]
        assert parts.keys() == {
            *("data", "compute", "communication", "waiting", "optimizer", "evaluation", "checkpoint", "other"),
        }
        assert all(seconds >= 0 for seconds in parts.values())
        training = sum(parts.values()) - parts["evaluation"] - parts["checkpoint"]
        assert record["step_seconds"] * record["steps"] == pytest.approx(training)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.long)])
def test_every_precision_learns(precision: str, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> None:
    quick = ["train.max_steps=40", "evaluation.every_steps=100", "schedule.warmup_steps=5", "schedule.peak=1e-2"]
    _, collector = train(tiny_config(f"train.precision={precision}", *quick), tiny_corpus, tmp_path / "run")
    losses = [record.as_dict()["train_loss"] for record in collector.records if record.kind == "progressed"]
    # An untrained model starts at ln 600 = 6.4; knowing which words are frequent is worth more than a nat.
    assert losses[0] > 6
    assert losses[-1] < 5


@pytest.mark.slow
def test_a_loss_scale_survives_a_stop(tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> None:
    def config(steps: int) -> Config:
        return tiny_config("train.precision=float16", "schedule.kind=inverse_sqrt", f"train.max_steps={steps}")

    train(config(8), tiny_corpus, tmp_path / "whole")
    train(config(4), tiny_corpus, tmp_path / "halves")
    train(config(8), tiny_corpus, tmp_path / "halves")
    whole, halves = (read(tmp_path / f"{name}/checkpoints/step-00000008") for name in ("whole", "halves"))
    scaler = whole.state["numbers"]["scaler"]
    # It counts the steps since the scale last changed; a fresh one would have counted four.
    assert scaler["steps_without_overflow"] > 4
    assert halves.state["numbers"]["scaler"] == scaler
    assert (whole.directory / MODEL_FILE).read_bytes() == (halves.directory / MODEL_FILE).read_bytes()


@pytest.mark.slow
def test_a_run_is_restored_in_a_phase_that_may_take_long(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a start-up the others would take it for hanging: files come from a mirror, and every byte is checked."""
    run, phases = tmp_path / "run", dict[str, str]()

    def watch(module: ModuleType, name: str) -> None:
        done = getattr(module, name)

        def watched(*arguments: object, **options: object) -> object:
            phases[name] = ACTIVITY.stay.phase
            return done(*arguments, **options)

        monkeypatch.setattr(module, name, watched)

    config = tiny_config("train.max_steps=2", f"checkpoint.mirror={tmp_path / 'mirror'}")
    train(config, tiny_corpus, run)
    shutil.rmtree(run)
    watch(loop, "restore_run")
    watch(trainer, "find_checkpoint")
    ended, _ = train(config, tiny_corpus, run)
    assert ended.step == 2
    assert phases == {"restore_run": "checkpoint", "find_checkpoint": "checkpoint"}


class SavedAt(View):
    """A view that remembers the step under way when each checkpoint was told to be saved."""

    def __init__(self) -> None:
        self.newest_step = 0
        self.steps: dict[int, int] = {}

    def show(self, record: Record) -> None:
        if isinstance(record, Saved):
            self.steps[record.step] = self.newest_step

    def stepped(self, step: int) -> None:
        self.newest_step = step


def test_a_checkpoint_counts_and_is_mirrored_from_the_first_step_after_it_is_written(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far the next log line is."""
    place, real, mirrored = tmp_path / "place", trainer.Trainer.fetch, list[str]()

    def fetch_when_written(self: trainer.Trainer, step: int) -> GlobalBatch:
        self.saves.finish()
        if step == 6:
            self.saves._mirror.finish(60)
            mirrored.extend(path.name for path in (place / "checkpoints").iterdir())
        return real(self, step)

    monkeypatch.setattr(trainer.Trainer, "fetch", fetch_when_written)
    saved_at = SavedAt()
    config = tiny_config("train.log_every=100", f"checkpoint.mirror={place}")
    loop.train(config, tiny_corpus.directory, tmp_path / "run", [saved_at])
    assert saved_at.steps == {4: 5, 8: 9, 12: 12}
    assert mirrored == ["step-00000004"]


@pytest.mark.parametrize("step", [6, 12])
def test_a_request_to_stop_in_an_evaluation_does_not_wait_for_its_end(
    step: int,
    trained: Path,
    tiny_corpus: PreparedCorpus,
    tiny_config: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The evaluation is made when the run continues, which ends with the same bits; also that of the last step."""
    config, run, batches = tiny_config("search.batch_sentences=1"), tmp_path / "run", []

    def asked_after_a_batch(asked: trainer.Trainer, done: int, total: int) -> None:
        if asked.state.progress.step == step:
            asked.stop_signal = signal.SIGTERM
            batches.append((done, total))

    with monkeypatch.context() as patched:
        patched.setattr(trainer.Trainer, "_evaluated_batch", asked_after_a_batch)
        ended, collector = train(config, tiny_corpus, run)
    assert (ended.reason, ended.step, ended.signal) == ("stopped on request", step, "SIGTERM")
    assert batches == [(1, 20)]
    said, saving, _ = [record for record in collector.records if isinstance(record, Noticed | Saved | Ended)][-3:]
    assert isinstance(said, Noticed)
    assert said.message == "stopping (SIGTERM): this evaluation is broken off, and made when the run continues"
    assert isinstance(saving, Saved)
    saved = read(run / f"checkpoints/step-{step:08d}")
    assert saved.state["numbers"]["progress"]["unevaluated"]
    ended, collector = train(config, tiny_corpus, run)
    assert (ended.reason, ended.step) == ("finished", 12)
    assert [record.step for record in collector.records if isinstance(record, Evaluated)] == sorted({step, 12})
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        ends = [each / "checkpoints/step-00000012" / name for each in (run, trained)]
        assert ends[0].read_bytes() == ends[1].read_bytes()
    numbers = [read(each / "checkpoints/step-00000012").state["numbers"] for each in (run, trained)]
    assert numbers[0] == numbers[1]


@pytest.mark.slow
def test_patience_ends_a_run_and_the_end_is_kept(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "FIRST_SENTENCES", 5)
    # A learning rate of next to nothing: BLEU never gets better than at the first evaluation.
    config = tiny_config("schedule.peak=1e-12", "evaluation.every_steps=1", "evaluation.patience=3")
    ended, _ = train(config, tiny_corpus, tmp_path / "run")
    assert (ended.step, ended.reason, ended.best_step) == (4, "stopped early", 1)
    assert (tmp_path / "run/checkpoints/step-00000004").is_dir()
    again, _ = train(config, tiny_corpus, tmp_path / "run")
    assert (again.step, again.reason) == (4, "stopped early")
    assert ended.best_first_sentences == again.best_first_sentences == 5


def test_a_gradient_that_is_not_finite_names_the_step_and_spoils_nothing(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    explosion = ["schedule.peak=1e30", "schedule.warmup_steps=1", "optimizer.clip_norm=", "checkpoint.every_steps=1"]
    explosion += ["divergence.skip_steps=0"]
    with pytest.raises(NonFiniteGradientError, match=r"^step (\d+): the gradient is not finite") as failure:
        train(tiny_config(*explosion), tiny_corpus, tmp_path / "run")
    step = int(str(failure.value).split()[1].rstrip(":"))
    newest = sorted((tmp_path / "run/checkpoints").iterdir())[-1]
    assert newest.name == f"step-{step - 1:08d}"
    weights = load_file(newest / MODEL_FILE)
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    assert list(read_journal(tmp_path / "run/journal/rank-0.jsonl"))[-1]["reason"].startswith(f"failed: step {step}")


@pytest.mark.slow
def test_all_processes_agree_that_a_gradient_is_not_finite(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    explosion = ["schedule.peak=1e30", "schedule.warmup_steps=1", "optimizer.clip_norm=", "checkpoint.every_steps=1"]
    explosion += ["divergence.skip_steps=0"]
    ended = processes.run_training(tiny_corpus, tmp_path / "run", *explosion, processes=2)
    assert ended.returncode != 0
    # Said once, by one of them.
    assert (ended.stdout + ended.stderr).count("the gradient is not finite") == 1
    assert "tandem: step " in ended.stderr
    ends = [list(read_journal(tmp_path / f"run/journal/rank-{rank}.jsonl"))[-1] for rank in (0, 1)]
    assert ends[0]["reason"] == ends[1]["reason"]
    assert ends[0]["reason"].startswith("failed: step")


@pytest.mark.slow
def test_more_processes_than_micro_batches_are_refused_with_the_remedy(
    tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    ended = processes.run_training(tiny_corpus, tmp_path / "run", "batch.micro_batches=1", processes=2)
    assert ended.returncode != 0
    assert "batch.micro_batches=2 batch.tokens=128" in ended.stderr


class TestContinuation:
    """Which changes of settings a run may be continued with."""

    @pytest.fixture
    def run(self, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> Path:
        train(tiny_config("train.max_steps=4", "schedule.kind=inverse_sqrt"), tiny_corpus, tmp_path / "run")
        return tmp_path / "run"

    def settings(self, *more: str) -> tuple[str, ...]:
        return ("schedule.kind=inverse_sqrt", *more)

    def test_longer_is_free(self, run: Path, tiny_corpus: PreparedCorpus, tiny_config: Make) -> None:
        ended, _ = train(tiny_config(*self.settings("train.max_steps=6")), tiny_corpus, run)
        assert ended.step == 6
        assert Config.load_saved(run / "config.yaml").train.max_steps == 6

    @pytest.mark.slow
    def test_other_steps_need_a_word(self, run: Path, tiny_corpus: PreparedCorpus, tiny_config: Make) -> None:
        other = tiny_config(*self.settings("batch.tokens=300", "optimizer.clip_norm=0.5"))
        with pytest.raises(
            TandemError, match=r"batch.tokens was 256, now 300; optimizer.clip_norm was 1.0, now 0.5\).*--change"
        ):
            train(other, tiny_corpus, run)
        ended, collector = train(other, tiny_corpus, run, change=True)
        assert ended.step == 12
        notices = [record.as_dict()["message"] for record in collector.records if record.kind == "noticed"]
        assert "changed setting: batch.tokens was 256, now 300" in notices

    @pytest.mark.slow
    def test_another_precision_takes_over_the_weights(
        self, run: Path, tiny_corpus: PreparedCorpus, tiny_config: Make
    ) -> None:
        for precision, steps in (("float16", 6), ("float32", 8)):
            other = tiny_config(*self.settings(f"train.precision={precision}", f"train.max_steps={steps}"))
            ended, _ = train(other, tiny_corpus, run, change=True)
            assert ended.step == steps

    def test_another_model_never(self, run: Path, tiny_corpus: PreparedCorpus, tiny_config: Make) -> None:
        for change in (False, True):
            with pytest.raises(
                TandemError, match=r"another model \(model.d_ff was 64, now 128\); choose another --run"
            ):
                train(tiny_config(*self.settings("model.d_ff=128", "batch.tokens=300")), tiny_corpus, run, change)

    def test_a_damaged_run_is_not_begun_anew_in_its_place(self, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
        (tmp_path / "run.json").write_text("{")
        with pytest.raises(TandemError, match=r"run.json: damaged \(.*\); start a new run with another --run"):
            train(Config.load("demo"), tiny_corpus, tmp_path)

    def test_a_cosine_depends_on_its_end(self, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> None:
        train(tiny_config("train.max_steps=2"), tiny_corpus, tmp_path / "cosine")
        with pytest.raises(TandemError, match=r"train.max_steps was 2, now 4"):
            train(tiny_config("train.max_steps=4"), tiny_corpus, tmp_path / "cosine")

    def test_another_corpus_never(
        self, run: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path, demo_text: Path
    ) -> None:
        from tandem.config import CorpusConfig
        from tandem.corpus.prepare.pipeline import prepare
        from tandem.corpus.text_files import CorpusTexts

        files = (demo_text / "dev.en", demo_text / "dev.de")
        other = prepare(CorpusTexts([files], files), tmp_path / "other", CorpusConfig(vocab_size=400))
        with pytest.raises(TandemError, match=r"another corpus than .*other; choose another --run"):
            train(tiny_config(*self.settings()), other, run)


def test_a_directory_with_something_else_in_it_is_refused(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(TandemError, match=r"exists and is not a run; choose another --run"):
        train(tiny_config(), tiny_corpus, tmp_path)


def test_a_start_killed_half_way_can_be_started_again(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", "tokenizer.model", ".config.yaml.writing"):
        (run / name).touch()
    ended, _ = train(tiny_config("train.max_steps=1"), tiny_corpus, run)
    assert ended.step == 1


def test_a_run_that_cannot_be_a_directory_is_one_clear_error(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TandemError, match=r"file: cannot be a run's directory \(File exists\); choose another --run"):
        train(tiny_config(), tiny_corpus, tmp_path / "file")


def test_start_up_is_recorded_apart_from_the_steps(
    tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    _, collector = train(tiny_config("train.max_steps=1"), tiny_corpus, tmp_path / "run")
    assert collector.records[0].as_dict()["startup_seconds"] > 0


@pytest.mark.slow
def test_a_disk_that_fills_up_stops_all_processes_in_order(tiny_corpus: PreparedCorpus, full_disk: Path) -> None:
    ended = processes.run_training(tiny_corpus, full_disk / "run", processes=2)
    assert ended.returncode != 0
    assert "cannot save the checkpoint" in ended.stderr
    assert "Traceback" not in ended.stderr.split("torch/distributed")[0]
    ends = [list(read_journal(full_disk / f"run/journal/rank-{rank}.jsonl"))[-1] for rank in (0, 1)]
    assert all(end["reason"].startswith("failed: ") for end in ends)


@pytest.mark.parametrize("there", [".", "runs", "runs/new/run"])
def test_a_run_that_is_refused_before_it_begins_leaves_nothing_behind(
    there: str, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny_corpus.directory, corpus)
    damaged = next(path for path in (corpus / "train").iterdir() if path.stat().st_size)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TandemError, match=rf"{damaged.name}: its contents differ from corpus\.json"):
        train(tiny_config(), PreparedCorpus.open(corpus), tmp_path / "runs/new/run")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_lock_that_its_holder_has_just_removed_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock(_: IO[bytes]) -> bool:
        (tmp_path / "run/.lock").unlink()
        return True

    monkeypatch.setattr(run_directory, "try_lock", lock)
    with pytest.raises(TandemError, match=r"another process is training here"), locked(tmp_path / "run"):
        pass


def test_two_trainings_of_one_run_are_refused(tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(TandemError, match=r"another process is training here"):
        train(tiny_config(), tiny_corpus, tmp_path / "run")
