"""Training that blows up: what counts as an explosion, what is skipped, and that going back changes nothing else."""

from __future__ import annotations

import json
import math
import random
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tandem.config import Config, DivergenceConfig
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, SUMS_FILE
from tandem.monitor.watch.run_state import RunState
from tandem.reporting.examine_run import report
from tandem.storage import sha256_of
from tandem.training import loop
from tandem.training.batches import Batches
from tandem.training.checkpoints.checkpoint import digest_lines
from tandem.training.faults.divergence import (
    LEAD_STEPS,
    WINDOW,
    DivergedError,
    LossHistory,
    NonFiniteGradientError,
    batch_number,
    plan_roll_back,
)
from tandem.training.trainer import Trainer
from testbed.journals import read_journal
from tests.training.processes import run_training, signal_training_when, train_on_hosts

SETTINGS = DivergenceConfig()


def first_explosion(losses: Sequence[float]) -> tuple[int, int | None] | None:
    """The step that is judged an explosion, counted from 1, and since when; None if there is none."""
    history = LossHistory()
    for step, loss in enumerate(losses, 1):
        if history.add(step, loss, rise=1.0):
            return step, history.suspicious_since
    return None


def noisy(levels: Sequence[float], deviation: float) -> list[float]:
    numbers = random.Random(1)
    return [numbers.gauss(level, deviation) for level in levels]


WARM_UP = [10.5 - 8.0 * (1 - math.exp(-step / 300)) for step in range(3000)]


@pytest.mark.parametrize(
    "losses",
    {
        "warm-up": noisy(WARM_UP, 0.1),
        "noise of tiny batches": noisy(WARM_UP, 1.0),
        "one hard batch in twenty": [
            loss + (8 if step % 20 == 0 else 0) for step, loss in enumerate(noisy(WARM_UP, 0.1))
        ],
        "six hard batches in a row": [
            max(9.0, loss) if step % 100 < 6 else loss for step, loss in enumerate(noisy(WARM_UP, 0.1))
        ],
        "steps that float16 skipped": [math.nan if step % 3 == 0 else loss for step, loss in enumerate(WARM_UP)],
        "a bump after the warm-up": noisy([3.0] * 500 + [3.7] * 500 + [3.0] * 500, 0.2),
        "a slow drift": noisy([2.0 + step / 5000 for step in range(20_000)], 0.1),
        "fewer steps than the window": [5.0] * (WINDOW - 1) + [900.0],
    }.values(),
)
def test_what_is_no_explosion(losses: Sequence[float]) -> None:
    assert first_explosion(losses) is None


@pytest.mark.parametrize("deviation", [0.0, 0.1, 0.15])
def test_an_explosion_is_seen_within_a_window_and_dated_back(deviation: float) -> None:
    found = first_explosion(noisy([*WARM_UP[:1000], *[7.5] * 100], deviation))
    assert found is not None
    step, since = found
    assert 1000 + WINDOW // 2 <= step <= 1000 + WINDOW
    assert since is not None
    assert 1001 - LEAD_STEPS < since <= 1001


@pytest.mark.parametrize("climb", [[12.0], [9.0 + step for step in range(1, 12)]], ids=["at once", "by and by"])
def test_an_explosion_in_the_first_steps_is_measured_by_the_untrained_model(climb: Sequence[float]) -> None:
    """A learning rate far too high, as without a warm-up: there never was a good loss to rise from."""
    found = first_explosion(noisy([9.0] * 6 + [*climb] + [climb[-1]] * 40, 0.05))
    assert found is not None
    step, since = found
    assert WINDOW <= step <= 2 * WINDOW
    assert since is not None
    assert 7 <= since <= 10


def test_a_climb_is_dated_back_to_its_foot() -> None:
    climb = [2.5 + step / 20 for step in range(100)]
    found = first_explosion(noisy([2.5] * 1000 + climb, 0.05))
    assert found is not None
    assert found[1] is not None
    # It is suspicious half a nat above the level, and an explosion when a window's median is a whole one above.
    assert 1000 + 20 <= found[0] <= 1000 + 40
    assert 1000 <= found[1] - LEAD_STEPS <= 1010


def test_a_history_continues_from_what_was_saved() -> None:
    losses = noisy([*WARM_UP[:500], *[9.0] * 40], 0.1)
    history, verdicts = LossHistory(), []
    for step, loss in enumerate(losses, 1):
        if step % 7 == 0:
            history = LossHistory(**json.loads(json.dumps(vars(history))))
        verdicts.append(history.add(step, loss, rise=1.0) is not None)
    assert verdicts.index(True) + 1 == first_explosion(losses)[0]  # type: ignore[index]


def test_every_step_has_a_batch_of_its_own_outside_of_the_windows() -> None:
    skipped = [[5, 8], [20, 30]]
    numbers = [batch_number(step, skipped) for step in range(1, 31)]
    assert numbers == [*range(1, 5), *range(8, 20), *range(30, 44)]


class TestPlan:
    """What is skipped, and when a run stops instead."""

    def plan(
        self,
        step: int,
        skipped: Sequence[Sequence[int]] = (),
        since: int | None = None,
        settings: DivergenceConfig = SETTINGS,
    ) -> tuple[int, list[list[int]]]:
        error = NonFiniteGradientError(step, f"step {step}: the gradient is not finite (nan)", 1e-3)
        plan = plan_roll_back(error, LossHistory(suspicious_since=since), skipped, settings)
        return plan.first_step, plan.skipped

    def test_a_window_from_before_the_first_sign(self) -> None:
        assert self.plan(500) == (490, [[490, 600]])
        assert self.plan(500, since=480) == (470, [[470, 580]])
        assert self.plan(4) == (1, [[1, 104]])

    def test_the_second_time_soon_after_it_stops(self) -> None:
        with pytest.raises(
            DivergedError,
            match=r"^step 900: .*; the second time, although the data of 100 steps from 490 on was skipped; cont",
        ):
            self.plan(900, [[490, 590]])

    def test_the_second_time_much_later_is_another_first(self) -> None:
        first_step, skipped = self.plan(5000, [[490, 590]])
        assert (first_step, skipped) == (4990, [[490, 590], [5090, 5200]])
        with pytest.raises(DivergedError, match=r"from 4,990 on was skipped"):
            self.plan(5100, skipped)

    def test_it_can_be_switched_off(self) -> None:
        with pytest.raises(
            NonFiniteGradientError, match=r"^step 500: the gradient is not finite \(nan\); continue with"
        ):
            self.plan(500, settings=DivergenceConfig(skip_steps=0))


# Real training, on a corpus with one batch that blows it up. Float32, because steps of one and two processes are
# compared; so small that the loss is noisy.
STEPS, BAD_STEP, SKIPPED = 44, 24, 4
SAVED_EVERY = 6
BLOWING_UP = (
    *("model.kind=tests.training.poisoned_model:Poisoned", "model.encoder_layers=1", "model.decoder_layers=1"),
    *("model.max_length=64", "batch.tokens=128", "batch.micro_batches=2", "train.precision=float32"),
    *("schedule.kind=inverse_sqrt", "schedule.peak=0.01", "schedule.warmup_steps=10", "optimizer.clip_norm="),
    *(
        "train.log_every=1",
        "evaluation.every_steps=1000",
        f"checkpoint.every_steps={SAVED_EVERY}",
        "checkpoint.keep_last=6",
    ),
    *("search.beam=1", "monitor.views=[]", f"train.max_steps={STEPS}", f"divergence.skip_steps={SKIPPED}"),
)
FINAL = f"checkpoints/step-{STEPS:08d}"


def poison_batches(
    config: Config, corpus: PreparedCorpus, place: Path, monkeypatch: pytest.MonkeyPatch, fault: str, *steps: int
) -> Batches:
    """Poison the batches of some steps, for this process and those it starts; the batches of the run."""
    batches = Batches.of_run(config, corpus.pairs("train"))
    packed = [batches.packed(batches.at(step).micro_batches[1], pinned=False) for step in steps]
    targets = [each.to(torch.device("cpu")).target_BT.tolist() for each in packed]
    (place / "poison.json").write_text(json.dumps(targets))
    monkeypatch.setenv("POISON", str(place / "poison.json"))
    monkeypatch.setenv("FAULT", fault)
    return batches


@pytest.fixture
def poison(
    tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Batches]:
    return partial(poison_batches, tiny_config(*BLOWING_UP), tiny_corpus, tmp_path, monkeypatch)


def kept_tokens(run: Path) -> dict[int, int]:
    """Target tokens of each step, of the last time that it was taken."""
    lines = read_journal(run / "journal/rank-0.jsonl")
    return {line["step"]: line["target_tokens"] for line in lines if line["kind"] == "progressed"}


def roll_backs(run: Path, rank: int = 0) -> list[dict[str, int]]:
    wanted = ("step", "to_step", "skipped_from", "skipped_steps")
    lines = read_journal(run / f"journal/rank-{rank}.jsonl")
    return [{key: line[key] for key in wanted} for line in lines if line["kind"] == "rolledback"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["nan", pytest.param("spike", marks=pytest.mark.long)])
def test_a_run_goes_back_and_on_with_other_data(
    fault: str, poison: Callable[..., Batches], tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """One process and two take the same steps; the console, `tandem watch` and the report tell it."""
    batches = poison(fault, BAD_STEP)
    alone, two = tmp_path / "alone", tmp_path / "two"
    # An Adam that forgets how large a gradient was long before it forgets where it pointed.
    settings = (*BLOWING_UP, "optimizer.beta2=0.1") if fault == "spike" else BLOWING_UP
    ended = run_training(tiny_corpus, alone, *settings)
    assert ended.returncode == 0, ended.stderr
    (back,) = roll_backs(alone)
    first, steps = back["skipped_from"], back["skipped_steps"]
    # A gradient is at fault in its own step, a loss some steps later.
    assert (back["step"], first) == (BAD_STEP, BAD_STEP - LEAD_STEPS) if fault == "nan" else back["step"] > BAD_STEP
    assert first <= BAD_STEP < first + steps
    # The newest checkpoint from before the window: those in it come too late, and the last is kept aside.
    assert back["to_step"] == (first - 1) // SAVED_EVERY * SAVED_EVERY
    (aside,) = (int(path.name.removeprefix("diverged-step-")) for path in (alone / "checkpoints").glob("diverged-*"))
    assert back["to_step"] < aside <= back["step"]
    places = {step: step if step < first else step + steps for step in range(1, STEPS + 1)}
    assert kept_tokens(alone) == {step: batches.at(place).target_tokens for step, place in places.items()}

    assert run_training(tiny_corpus, two, *settings, processes=2).returncode == 0
    assert roll_backs(two) == roll_backs(two, rank=1) == roll_backs(alone)
    weights = [load_file(run / FINAL / MODEL_FILE) for run in (alone, two)]
    assert all((weights[0][name] - weights[1][name]).abs().max() < 1e-3 for name in weights[0])

    words = f"went back to step {back['to_step']} and skipped the data of {steps} steps from step {first} on"
    assert f"rolled back: step {back['step']}: " in ended.stdout
    assert words in ended.stdout
    state = RunState()
    for line in (alone / "journal/rank-0.jsonl").read_bytes().splitlines(keepends=True):
        state.add_line(0, line)
    assert any(message.message.endswith(words) for message in state.messages)
    assert [step for step, _ in state.losses] == list(range(1, STEPS + 1))
    trained = next(answer for answer in report(alone).questions if answer.id == "trained")
    assert trained.answer.endswith(f"; it {words}.")
    assert trained.evidence["roll_backs"] == 1


@pytest.mark.long
def test_a_kill_after_going_back_changes_no_bit(
    poison: Callable[..., Batches], tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    poison("nan", BAD_STEP)
    left_alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert run_training(tiny_corpus, left_alone, *BLOWING_UP).returncode == 0
    # Before it was saved again, when nothing but the journal knows of it, and after.
    signal_training_when("rolled back", signal.SIGKILL, tiny_corpus, killed, *BLOWING_UP)
    signal_training_when("step 26/", signal.SIGKILL, tiny_corpus, killed, *BLOWING_UP)
    assert run_training(tiny_corpus, killed, *BLOWING_UP).returncode == 0
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        assert (killed / FINAL / name).read_bytes() == (left_alone / FINAL / name).read_bytes()
    numbers = [json.loads((run / FINAL / STATE_FILE).read_text())["numbers"] for run in (left_alone, killed)]
    assert numbers[0] == numbers[1]
    first = BAD_STEP - LEAD_STEPS
    assert numbers[0]["progress"]["skipped"] == [[first, BAD_STEP + SKIPPED]]


def plant_skipped(checkpoint: Path, skipped: Sequence[Sequence[int]]) -> None:
    """Let a checkpoint say that windows of data are skipped, as if the run had gone back to it."""
    state = json.loads((checkpoint / STATE_FILE).read_text())
    state["numbers"]["progress"]["skipped"] = skipped
    (checkpoint / STATE_FILE).write_text(json.dumps(state))
    digests = {name: sha256_of(checkpoint / name) for name in (*state["files"], STATE_FILE)}
    (checkpoint / SUMS_FILE).write_bytes(digest_lines(digests))


@pytest.mark.parametrize(
    ("bad_steps", "hosts", "settings"),
    [
        pytest.param((BAD_STEP,), ("a",), ("train.ema_decay=0.9", "optimizer.freeze=[encoder]"), id="average, freeze"),
        pytest.param((BAD_STEP,), ("a", "b"), ("exchange.kind=int4",), id="int4"),
        # In a step that a host takes by itself.
        pytest.param(
            (BAD_STEP - 1,),
            ("a", "b"),
            ("exchange.kind=diloco", "exchange.start_steps=0", "exchange.local_steps=4", "train.ema_decay=0.9"),
            id="diloco",
        ),
        # It gives up when the loss scale has been halved until it is below 1.
        pytest.param(range(BAD_STEP, BAD_STEP + 21), ("a",), ("train.precision=float16",), id="float16"),
    ],
)
@pytest.mark.long
def test_going_back_is_as_if_the_data_had_never_been_there(
    bad_steps: Sequence[int],
    hosts: Sequence[str],
    settings: Sequence[str],
    poison: Callable[..., Batches],
    tiny_corpus: PreparedCorpus,
    tmp_path: Path,
) -> None:
    """Weights, averages, frozen parts, loss scale and what exchanges remember, in processes that go on."""
    poison("nan", *bad_steps)
    went_back, never_met = tmp_path / "went back", tmp_path / "never met"

    def train(run: Path, *more: str) -> None:
        for ended in train_on_hosts(
            [tiny_corpus] * len(hosts), [run] * len(hosts), hosts, *BLOWING_UP, *settings, *more
        ):
            assert ended.returncode == 0, ended.stderr

    train(went_back)
    (back,) = roll_backs(went_back)
    assert back["to_step"] >= SAVED_EVERY
    skipped = json.loads((went_back / FINAL / STATE_FILE).read_text())["numbers"]["progress"]["skipped"]
    train(never_met, f"train.max_steps={back['to_step']}")
    plant_skipped(never_met / f"checkpoints/step-{back['to_step']:08d}", skipped)
    train(never_met)
    assert not roll_backs(never_met)
    kept = [*went_back.glob(f"{FINAL}/*.safetensors"), *went_back.glob(f"hosts/*/step-{STEPS:08d}/*.safetensors")]
    assert len(kept) >= 2
    for name in (path.relative_to(went_back) for path in kept):
        assert (went_back / name).read_bytes() == (never_met / name).read_bytes(), name
    numbers = [json.loads((run / FINAL / STATE_FILE).read_text())["numbers"] for run in (went_back, never_met)]
    assert numbers[0]["scaler"] == numbers[1]["scaler"]


@pytest.mark.slow
def test_the_second_time_all_processes_stop_with_one_sentence(
    poison: Callable[..., Batches], tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    poison("nan", BAD_STEP, BAD_STEP + 14)
    ended = run_training(tiny_corpus, tmp_path / "run", *BLOWING_UP, processes=2)
    assert ended.returncode != 0
    said = "the second time, although the data of 14 steps from 14 on was skipped; continue with --change and"
    assert ended.stderr.count(said) == 1
    assert len(roll_backs(tmp_path / "run")) == 1
    ends = [list(read_journal(tmp_path / f"run/journal/rank-{rank}.jsonl"))[-1] for rank in (0, 1)]
    assert all(end["reason"].startswith("failed: step 24: the gradient is not finite") for end in ends)
    assert next(answer for answer in report(tmp_path / "run").questions if answer.id == "trained").verdict == "diverged"


@pytest.mark.slow
def test_a_stop_in_an_evaluation_that_going_back_repeats_is_honoured_and_changes_no_bit(
    tiny_corpus: PreparedCorpus,
    tiny_config: Callable[..., Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that begins with another's model is evaluated before its first step, and again when it begins anew."""
    # By the time of the fault the checkpoint from before the first step is gone.
    kept = ("checkpoint.every_steps=4", "checkpoint.keep_last=1")
    settings = (*BLOWING_UP, *kept, "train.max_steps=12", "evaluation.every_steps=8")
    config = tiny_config(*settings, "search.batch_sentences=1", "divergence.skip_steps=2")
    put_poison = partial(poison_batches, config, tiny_corpus, tmp_path, monkeypatch, "nan")
    put_poison()
    other = tmp_path / "other"
    loop.train(config.with_settings("train", max_steps=2), tiny_corpus.directory, other, [])
    put_poison(5)
    left_alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    assert loop.train(config, tiny_corpus.directory, left_alone, [], start_from=other).step == 12
    real, evaluations = Trainer.evaluate, list[int]()

    def asked_in_the_second(trainer: Trainer) -> None:
        evaluations.append(trainer.state.progress.step)
        if len(evaluations) == 2:
            trainer.stop_signal = signal.SIGTERM
        real(trainer)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "evaluate", asked_in_the_second)
        ended = loop.train(config, tiny_corpus.directory, stopped, [], start_from=other)
    assert (ended.reason, ended.step, ended.signal) == ("stopped on request", 0, "SIGTERM")
    assert evaluations == [0, 0]
    assert loop.train(config, tiny_corpus.directory, stopped, [], start_from=other).step == 12
    assert len(roll_backs(stopped)) == len(roll_backs(left_alone)) == 1
    ends = [run / "checkpoints/step-00000012" for run in (left_alone, stopped)]
    for name in (MODEL_FILE, OPTIMIZER_FILE):
        assert (ends[0] / name).read_bytes() == (ends[1] / name).read_bytes()
    numbers = [json.loads((end / STATE_FILE).read_text())["numbers"] for end in ends]
    assert numbers[0] == numbers[1]
    assert numbers[0]["progress"]["start_bleu"] is not None
