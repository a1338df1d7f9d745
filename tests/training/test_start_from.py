"""Going on from another model: what is taken over, what is refused, and what the new run remembers."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tandem.layout import EXPORT_FILE, MODEL_FILE, OPTIMIZER_FILE
from tandem.reporting.examine_run import report
from tandem.training.checkpoints.average import average_run
from tandem.training.checkpoints.other_run import OtherRun
from tandem.training.loop import train
from tandem.training.origin import Origin
from tandem.training.run_directory import Run
from testbed.journals import read_journal
from tests.conftest import SPLITS
from tests.training.processes import run_training, signal_training_when
from tests.training.test_resume import assert_same_end

Make = Callable[..., Config]


@pytest.fixture(scope="module")
def new_corpus(
    demo_text: Path, tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory
) -> PreparedCorpus:
    """Text with a letter that the old vocabulary has no piece for, encoded with an extended one."""
    directory = tmp_path_factory.mktemp("new")
    for path in demo_text.iterdir():
        (directory / path.name).write_text(path.read_text(encoding="utf-8").replace("a", "œ"), encoding="utf-8")
    files = {split: (directory / f"{split}.en", directory / f"{split}.de") for split in SPLITS}
    texts = CorpusTexts([files["train"]], files["dev"], files["test"])
    return prepare(texts, directory / "corpus", vocabulary=tiny_corpus.directory, extend=45)


def weights_of(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(directory / MODEL_FILE)


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").iterdir())[-1]


def evaluations(run: Path) -> list[tuple[int, float]]:
    records = read_journal(run / "journal/rank-0.jsonl")
    return [(record["step"], record["eval_loss"]) for record in records if record["kind"] == "evaluated"]


def test_old_rows_stay_and_new_ones_are_the_mean_of_what_they_were_split_into(
    trained: Path, new_corpus: PreparedCorpus, tiny_config: Make
) -> None:
    config, last = tiny_config("train.max_steps=20"), newest(trained)
    start = OtherRun(trained, with_optimizer=True).read(config, new_corpus)
    old, new = Run.open(trained).tokenizer(), new_corpus.tokenizer
    assert start.origin.new_pieces == new.vocab_size - old.vocab_size == 45
    split = old.split(new.pieces()[old.vocab_size :])
    assert any(len(parts) > 1 for parts in split)
    for before, after in (
        (weights_of(last)["embedding.weight"], start.files[MODEL_FILE]["embedding.weight"]),
        *(
            (load_file(last / OPTIMIZER_FILE)[name], start.files[OPTIMIZER_FILE][name])
            for name in ("embedding.weight.exp_avg", "embedding.weight.exp_avg_sq")
        ),
    ):
        assert torch.equal(after[: old.vocab_size], before[: old.vocab_size])
        for place, parts in enumerate(split):
            torch.testing.assert_close(after[old.vocab_size + place], sum(before[part] for part in parts) / len(parts))
        assert len(after) == 648  # of eight each
        assert not after[new.vocab_size :].any()
    unchanged = {name for name in weights_of(last) if name != "embedding.weight"}
    assert all(torch.equal(weights_of(last)[name], start.files[MODEL_FILE][name]) for name in unchanged)
    assert start.numbers["progress"]["step"] == start.origin.first_step == 12


def test_a_run_begins_with_the_other_ones_weights_and_does_not_need_it_again(
    trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    other, run, config = tmp_path / "other", tmp_path / "run", tiny_config("train.max_steps=2")
    shutil.copytree(trained, other)
    ended = train(config, tiny_corpus.directory, run, [], start_from=other)
    [best] = (other / "best").iterdir()
    assert weights_of(run / "start").keys() == weights_of(best).keys()
    assert all(torch.equal(weights_of(run / "start")[name], each) for name, each in weights_of(best).items())
    [(step, loss), (last, _)] = evaluations(run)
    of_other = dict(evaluations(other))[int(best.name.removeprefix("step-"))]
    assert (step, last) == (0, 2)
    assert loss == pytest.approx(of_other, abs=1e-6)
    assert ended.start_bleu is not None
    origin = Run.open(run).origin
    assert origin == Origin(
        place=str(other),
        run=str(other),
        checkpoint=f"best/{best.name}",
        step=int(best.name.removeprefix("step-")),
        bleu=json.loads((best / "state.json").read_text())["bleu"],
        with_optimizer=False,
        corpus_digest=tiny_corpus.digest,
        new_pieces=0,
    )
    [trained_answer] = [answer for answer in report(run).questions if answer.id == "trained"]
    assert f"it began with {origin}, which had BLEU" in trained_answer.answer
    assert trained_answer.evidence["first_eval_loss"] == loss
    # Without its checkpoints it begins again, from its own copy.
    end = weights_of(newest(run))
    for gone in (other, run / "checkpoints", run / "best"):
        shutil.rmtree(gone)
    train(config, tiny_corpus.directory, run, [], start_from=other)
    assert all(torch.equal(weights_of(newest(run))[name], each) for name, each in end.items())
    shutil.rmtree(run / "start")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(TandemError, match=r"start: not a whole checkpoint .*; put back a copy of it, or begin again"):
        train(config, tiny_corpus.directory, run, [])


def test_the_optimizer_and_the_step_are_taken_over_if_asked_for(
    trained: Path, new_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    run, config = tmp_path / "run", tiny_config("train.max_steps=14", "checkpoint.keep_last=9")
    ended = train(config, new_corpus.directory, run, [], start_from=trained, with_optimizer=True)
    assert ended.step == 14
    assert [step for step, _ in evaluations(run)] == [12, 14]
    steps = {name: float(value) for name, value in load_file(newest(run) / OPTIMIZER_FILE).items() if "step" in name}
    assert set(steps.values()) == {14.0}
    progressed = [record for record in read_journal(run / "journal/rank-0.jsonl") if record["kind"] == "progressed"]
    assert [(record["step"], record["steps"]) for record in progressed] == [(14, 2)]
    assert not report(run).problems


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_frozen_parts_stay_bit_by_bit(
    precision: str, trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # Weight decay moves what has no gradient, too.
    settings = (f"train.precision={precision}", "optimizer.weight_decay=0.1", "optimizer.freeze=[embedding, encoder]")
    train(tiny_config("train.max_steps=3", *settings), tiny_corpus.directory, run, [], start_from=trained / "last")
    before, after = weights_of(newest(trained)), weights_of(newest(run))
    moved = {name for name, weights in before.items() if not torch.equal(weights, after[name])}
    assert {name for name in before if name.startswith("decoder")} == moved
    assert {name.partition(".")[0] for name in load_file(newest(run) / OPTIMIZER_FILE)} == {"decoder", "decoder_norm"}
    [started] = [record for record in read_journal(run / "journal/rank-0.jsonl") if record["kind"] == "started"]
    assert started["frozen_parameters"] == sum(before[name].numel() for name in before.keys() - moved)
    with pytest.raises(TandemError, match=r"has an optimizer for what it trains \(optimizer.freeze was .*; freeze the"):
        train(tiny_config("train.max_steps=3", *settings[:2]), tiny_corpus.directory, run, [], change=True)


def test_averaged_weights_and_a_mirror(
    trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    other, run, mirror = (tmp_path / name for name in ("other", "run", "mirror"))
    shutil.copytree(trained, other)
    average_run(Run.open(other), last=2, best=None)
    config = tiny_config("train.max_steps=2", f"checkpoint.mirror={mirror}")
    ended = train(config, tiny_corpus.directory, run, [], start_from=other / "averaged")
    begun, end = weights_of(run / "start"), weights_of(newest(run))
    assert torch.equal(begun["embedding.weight"], weights_of(other / "averaged")["embedding.weight"])
    # The mirror has all that the run begins again with.
    shutil.rmtree(run)
    shutil.rmtree(mirror / "checkpoints")
    with pytest.raises(TandemError, match=r"has begun with --from .*other/averaged; give the same, or neither"):
        train(config, tiny_corpus.directory, run, [], start_from=trained)
    assert not run.exists()
    assert train(config, tiny_corpus.directory, run, []).start_bleu == ended.start_bleu
    assert all(torch.equal(weights_of(newest(run))[name], each) for name, each in end.items())


@pytest.mark.parametrize(
    ("place", "settings", "expected"),
    [
        ("nowhere", [], "neither a run nor a checkpoint of one; name RUN, RUN/best"),
        ("trained/checkpoints/step-00000001", [], "neither a run nor a checkpoint of one"),
        ("trained/averaged", [], "nothing averaged yet; run `tandem average"),
        ("exported", [], "an exported model, which is not trained any more; name its run"),
        (
            "trained",
            ["model.d_ff=128", "model.heads=4"],
            "has a model of another shape (model.heads was 2, now 4; model.d_ff was 64, now 128); add model.heads=2 "
            "model.d_ff=64",
        ),
        ("trained/best", ["--with-optimizer"], "holds weights alone; name "),
        ("trained", ["--with-optimizer"], "goes on after step 12, but train.max_steps is 12; raise it"),
        ("trained", ["optimizer.freeze=[encodr, norm]"], "the model has no part encodr, norm; its parts are embedding"),
        ("trained", ["optimizer.freeze=[embedding, encoder, decoder]"], "nothing is left to train; leave out one part"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    place: str,
    settings: list[str],
    expected: str,
    trained: Path,
    tiny_corpus: PreparedCorpus,
    tiny_config: Make,
    tmp_path: Path,
) -> None:
    # Other tests may have averaged its checkpoints.
    shutil.copytree(trained, tmp_path / "trained", ignore=shutil.ignore_patterns("averaged"))
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / EXPORT_FILE).write_text("{}")
    with_optimizer = settings == ["--with-optimizer"]
    config = tiny_config(*([] if with_optimizer else settings))
    with pytest.raises(TandemError) as refused:
        train(
            config,
            tiny_corpus.directory,
            tmp_path / "run",
            [],
            start_from=tmp_path / place,
            with_optimizer=with_optimizer,
        )
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_another_vocabulary_is_refused_with_the_remedy(
    trained: Path, demo_text: Path, tiny_config: Make, tmp_path: Path
) -> None:
    files = {split: (demo_text / f"{split}.en", demo_text / f"{split}.de") for split in SPLITS}
    settings = tiny_config("corpus.vocab_size=500").corpus
    corpus = prepare(CorpusTexts([files["train"]], files["dev"], None), tmp_path / "corpus", settings)
    with pytest.raises(TandemError, match=rf"prepare the corpus with --vocabulary {trained}$"):
        train(tiny_config(), corpus.directory, tmp_path / "run", [], start_from=trained)
    with pytest.raises(TandemError, match=r"^--with-optimizer: takes over the optimizer of the run that --from names"):
        train(tiny_config(), corpus.directory, tmp_path / "run", [], with_optimizer=True)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_there_is_not_begun_again(
    trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(TandemError, match=r"has begun without --from; leave it out to continue the run"):
        train(tiny_config(), tiny_corpus.directory, tmp_path / "run", [], start_from=trained)


def test_an_optimizer_does_not_know_what_was_frozen(
    trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("freeze: []", "freeze: [decoder]"))
    with pytest.raises(TandemError, match=r"froze decoder, of which there are no means to take over; leave --with-opt"):
        OtherRun(other, with_optimizer=True).read(tiny_config("train.max_steps=20"), tiny_corpus)


def test_a_damaged_optimizer_is_not_taken_over(
    trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "other")
    damaged = newest(tmp_path / "other") / OPTIMIZER_FILE
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(
        TandemError, match=rf"^--with-optimizer: {damaged}: damaged, .*; leave it out, or name another$"
    ):
        OtherRun(newest(tmp_path / "other"), with_optimizer=True).read(tiny_config("train.max_steps=20"), tiny_corpus)


def test_checkpoints_may_lie_on_another_disk(
    trained: Path, tiny_corpus: PreparedCorpus, tiny_config: Make, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "other")
    (tmp_path / "other/best").rename(tmp_path / "elsewhere")
    (tmp_path / "other/best").symlink_to(tmp_path / "elsewhere")
    start = OtherRun(tmp_path / "other").read(tiny_config(), tiny_corpus)
    assert start.origin.checkpoint.startswith("best/step-")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_killed_or_not_a_run_from_another_ends_with_the_same_bits(
    processes: int, trained: Path, new_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    other, whole, killed = (tmp_path / name for name in ("other", "whole", "killed"))
    shutil.copytree(trained, other)
    options = ("--from", str(other), "optimizer.freeze=[encoder]")
    ended = run_training(new_corpus, whole, *options, processes=processes)
    assert ended.returncode == 0, ended.stderr
    # Before its evaluation counts, and after it; the second time the other run is gone.
    signal_training_when("step 0: dev BLEU", signal.SIGKILL, new_corpus, killed, *options, processes=processes)
    shutil.rmtree(other)
    signal_training_when("step 6: dev BLEU", signal.SIGKILL, new_corpus, killed, *options, processes=processes)
    assert run_training(new_corpus, killed, *options, processes=processes).returncode == 0
    assert_same_end(whole, killed)
    assert [step for step, _ in evaluations(whole)] == [0, 6, 12]


@pytest.mark.slow
def test_several_processes_begin_with_the_same_weights(
    trained: Path, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    losses = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        options = ("--from", str(trained), "optimizer.freeze=[embedding]", "train.max_steps=4")
        ended = run_training(tiny_corpus, run, *options, "train.precision=float32", processes=processes)
        assert ended.returncode == 0, ended.stderr
        records = list(read_journal(run / "journal/rank-0.jsonl"))
        losses.append([record["train_loss"] for record in records if record["kind"] == "progressed"])
        assert torch.equal(weights_of(newest(run))["embedding.weight"], weights_of(run / "start")["embedding.weight"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_what_a_run_came_from_in_words() -> None:
    origin = Origin(
        place="/runs/old",
        run="/runs/old",
        checkpoint="best/step-00004000",
        step=4000,
        bleu=31.25,
        with_optimizer=True,
        corpus_digest="",
        new_pieces=1200,
    )
    told = "best/step-00004000 (step 4,000, BLEU 31.25 on its own dev set, with its optimizer, 1,200 new pieces)"
    assert str(origin) == f"/runs/old/{told}"
    assert origin.name == f"old/{told}"
