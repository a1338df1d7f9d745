"""Training by several hosts, played by real processes on one: every exchange strategy, left alone and killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tandem.config import Config, CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.layout import EXCHANGE_FILE, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE
from tandem.training.train_state import TrainState
from testbed.journals import read_journal
from tests.conftest import TINY
from tests.training.processes import kill_hosts_when, run_training, train_on_hosts

pytestmark = pytest.mark.slow

# One layer of each and a greedy search, because most of the time goes into starting processes anyway. Rates that
# do not depend on the last step; Adam's epsilon keeps rounding in tiny gradients small.
SETTINGS = (
    "train.precision=float32",
    "schedule.kind=inverse_sqrt",
    "schedule.warmup_steps=2",
    "optimizer.epsilon=1e-6",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.max_length=32",
    "search.beam=1",
    "evaluation.every_steps=100",
    "train.max_steps=6",
    "train.log_every=1",
    "checkpoint.every_steps=3",
)
# Rounds end at 4, 8 and, cut short, at 10; nothing else falls on these steps by itself. The weights are averaged: only
# here that is not done in every step.
DILOCO = (
    "train.ema_decay=0.9",
    "exchange.kind=diloco",
    "exchange.local_steps=4",
    "exchange.start_steps=0",
    "train.max_steps=10",
    "train.log_every=3",
    "evaluation.every_steps=5",
    "checkpoint.every_steps=6",
)
WAYS = {
    **{kind: (*SETTINGS, f"exchange.kind={kind}") for kind in ("allreduce", "bf16", "int4", "powersgd")},
    "diloco": (*SETTINGS, *DILOCO),
}
LAST_STEP = {**dict.fromkeys(WAYS, 6), "diloco": 10}
REMEMBERS = ("int4", "powersgd", "diloco")
TWO_HOSTS = ("a", "b")


def cases(*cases: tuple[Any, ...]) -> list[Any]:
    """Parameters whose first is a way: those of the others stand for these two, whose tests take minutes."""
    return [pytest.param(*case, marks=[pytest.mark.long] * (case[0] in ("bf16", "powersgd"))) for case in cases]


TWO_BY_TWO = ("a", "a", "b", "b")


@dataclass(frozen=True)
class Trainings:
    """One training in one go in a directory that both hosts share; one of hosts without a common disk, killed once."""

    whole: Path
    broken: tuple[Path, Path]
    """The directory of each host."""
    at_the_break: tuple[Path, Path]
    """Copies of them from between the two sessions."""
    settings: tuple[str, ...]
    last_step: int


Train = Callable[[str], Trainings]


def finished(corpus: PreparedCorpus, runs: tuple[Path, ...], hosts: tuple[str, ...], *settings: str) -> str:
    """Train to the end; what the first process said."""
    ended = train_on_hosts([corpus] * len(hosts), runs, hosts, *settings)
    for process in ended:
        assert process.returncode == 0, process.stderr
    return ended[0].stdout


def trained(
    corpus: PreparedCorpus, directory: Path, hosts: tuple[str, ...], settings: tuple[str, ...], last_step: int
) -> Trainings:
    whole, first, second = (directory / name for name in ("whole", "first", "second"))
    finished(corpus, (whole,) * len(hosts), hosts, *settings)
    runs = tuple(first if host == hosts[0] else second for host in hosts)
    kill_hosts_when("saved ", [corpus] * len(hosts), runs, hosts, *settings)
    copies = tuple(shutil.copytree(run, run.with_name(f"{run.name}-at-the-break")) for run in (first, second))
    said = finished(corpus, runs, hosts, *settings)
    assert "continuing after step" in said
    assert "no memory" not in said
    return Trainings(whole, (first, second), (copies[0], copies[1]), settings, last_step)


@pytest.fixture(scope="module")
def train(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trainings by two hosts of one process each, made when they are first asked for."""
    made: dict[str, Trainings] = {}

    def of(way: str) -> Trainings:
        if way not in made:
            directory = tmp_path_factory.mktemp(way)
            made[way] = trained(tiny_corpus, directory, TWO_HOSTS, WAYS[way], LAST_STEP[way])
        return made[way]

    return of


def step_directory(run: Path, step: int) -> Path:
    return run / f"checkpoints/step-{step:08d}"


def records(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    return [record for record in read_journal(run / f"journal/rank-{rank}.jsonl") if record["kind"] == kind]


def assert_same_end(trainings: Trainings, remembered: tuple[str, ...]) -> None:
    """The same weights, the same means of Adam, and the same memory on each host, bit for bit."""
    step = trainings.last_step
    whole, broken = step_directory(trainings.whole, step), step_directory(trainings.broken[0], step)
    states = [json.loads((directory / STATE_FILE).read_text()) for directory in (whole, broken)]
    assert states[0]["numbers"] == states[1]["numbers"]
    for name in states[0]["files"]:
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    for host, run in enumerate(trainings.broken):
        left, right = (of / f"hosts/host-{host}/step-{step:08d}" for of in (trainings.whole, run))
        assert left.is_dir() is right.is_dir() is bool(remembered)
        for name in remembered:
            assert (left / name).read_bytes() == (right / name).read_bytes(), f"host {host}: {name}"
    # Nothing of the run lies with the host that does not lead it, but its journal and its memory.
    assert {path.name for path in trainings.broken[1].iterdir()} == {"journal", *(["hosts"] if remembered else [])}


def remembered_by(way: str) -> tuple[str, ...]:
    return {"diloco": (EXCHANGE_FILE, OPTIMIZER_FILE)}.get(way, (EXCHANGE_FILE,) if way in REMEMBERS else ())


# One that remembers and one with local steps; the others in the long ring, and in bench.faults.
@pytest.mark.parametrize(
    "way", [way if way in ("int4", "diloco") else pytest.param(way, marks=pytest.mark.long) for way in WAYS]
)
def test_killed_or_not_all_ways_end_with_the_same_bits(way: str, train: Train) -> None:
    assert_same_end(train(way), remembered_by(way))


@pytest.mark.long
def test_killed_or_not_in_the_steps_before_the_local_ones(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    # Killed at step 2, of which the first five are taken together.
    settings = (*SETTINGS, *DILOCO, "exchange.start_steps=5", "checkpoint.every_steps=2")
    assert_same_end(trained(tiny_corpus, tmp_path, TWO_HOSTS, settings, 10), remembered_by("diloco"))


@pytest.mark.parametrize("way", cases(*zip(REMEMBERS)))
def test_a_hosts_memory_is_its_own_and_not_empty(way: str, train: Train) -> None:
    run = train(way).whole
    first, second = (load_file(run / f"hosts/host-{host}/step-{LAST_STEP[way]:08d}" / EXCHANGE_FILE) for host in (0, 1))
    assert first.keys() == second.keys()
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert any(tensor.any() for tensor in first.values())


def test_every_journal_tells_of_all_hosts(train: Train) -> None:
    for host, run in enumerate(train("int4").broken):
        surveys = records(run, "surveyed", rank=host)
        # The first log line of each of the two sessions at least, and both hosts at the same ones.
        assert len(surveys) >= 2
        assert [survey["step"] for survey in surveys] == [
            survey["step"] for survey in records(train("int4").broken[0], "surveyed")
        ]
        assert all([summary["host"] for summary in survey["hosts"]] == ["a", "b"] for survey in surveys)
        last = surveys[-1]["hosts"]
        assert all(0 < summary["memory"] < 1 and summary["seconds"]["compute"] > 0 for summary in last)
        # The samples themselves stay with their host.
        assert {sample["use"]["host"] for sample in records(run, "sampled", rank=host)} == {"ab"[host]}


# --- how close they stay to a single process


@pytest.fixture(scope="module")
def alone(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    ended = run_training(tiny_corpus, run, *SETTINGS)
    assert ended.returncode == 0, ended.stderr
    return run


def weights(run: Path, step: int) -> Tensor:
    return flat(load_file(step_directory(run, step) / MODEL_FILE))


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


@pytest.mark.parametrize(("way", "bound"), cases(("allreduce", 1e-4), ("bf16", 0.02), ("int4", 0.5), ("powersgd", 0.9)))
def test_the_weights_stay_close_to_those_of_one_process(
    way: str, bound: float, train: Train, alone: Path, tiny_corpus: PreparedCorpus
) -> None:
    """How far apart, as a share of the way that the weights have come."""
    config = Config.load("demo", [*TINY, *SETTINGS])
    start = flat(TrainState.fresh(config, tiny_corpus.tokenizer.vocab_size, torch.device("cpu")).model.named_weights())
    single, several = weights(alone, 6), weights(train(way).whole, 6)
    assert (several - single).norm() <= bound * (single - start).norm()
    # What travels in fewer bits cannot be the same.
    assert way == "allreduce" or (several - single).norm() > 1e-4 * (single - start).norm()


@pytest.mark.parametrize("way", cases(("allreduce",), ("bf16",), ("int4",), ("powersgd",)))
def test_every_way_sees_the_same_first_loss(way: str, train: Train, alone: Path) -> None:
    single, several = (records(run, "progressed")[0]["train_loss"] for run in (alone, train(way).whole))
    assert several == pytest.approx(single, rel=1e-5)


# --- what the journals say


@pytest.mark.parametrize("way", cases(*zip(WAYS)))
def test_both_hosts_journals_agree(way: str, train: Train) -> None:
    run = train(way).whole
    first, second = (records(run, "progressed", rank) for rank in (0, 1))
    assert [record["train_loss"] for record in first] == [record["train_loss"] for record in second]
    assert [record["step"] for record in first] == [record["step"] for record in second]
    started = [records(run, "started", rank)[0] for rank in (0, 1)]
    assert [(record["host"], record["hosts"]) for record in started] == [("a", ["a", "b"]), ("b", ["a", "b"])]
    assert [records(run, "planned", rank)[0]["exchange"] for rank in (0, 1)] == [way, way]


def test_local_steps_are_logged_evaluated_and_saved_only_where_all_hold_the_same_weights(train: Train) -> None:
    run = train("diloco").whole
    assert [record["step"] for record in records(run, "progressed")] == [4, 8, 10]
    assert [record["steps"] for record in records(run, "progressed")] == [4, 4, 2]
    assert [record["step"] for record in records(run, "evaluated")] == [8, 10]
    assert [record["step"] for record in records(run, "saved")] == [8, 10]
    assert records(run, "planned")[0]["local_steps"] == 4


@pytest.mark.parametrize("way", ["allreduce", "diloco"])
def test_hosts_settle_a_checkpoint_soon_after_it_is_written(
    way: str, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """Before the next evaluation, though neither a log line nor another checkpoint comes until then."""
    seldom = ("train.max_steps=40", "train.log_every=100", "checkpoint.every_steps=20", "evaluation.every_steps=36")
    finished(tiny_corpus, (tmp_path / "run",) * 2, TWO_HOSTS, *WAYS[way], *seldom)
    told = [(record["kind"], record["step"]) for record in read_journal(tmp_path / "run/journal/rank-0.jsonl")]
    assert told.index(("saved", 20)) < told.index(("evaluated", 36))


@pytest.mark.parametrize(
    ("way", "exchanges", "bytes_a_value"),
    # The last half step is not rounded to whole stretches here: see the sums' own tests.
    cases(("allreduce", 6, 4), ("bf16", 6, 2), ("int4", 6, 0.5 + 2 / 256), ("diloco", 3, 0.5 + 2 / 256)),
)
def test_bytes_follow_from_the_way(way: str, exchanges: int, bytes_a_value: float, train: Train) -> None:
    run = train(way).whole
    values = records(run, "started")[0]["parameters"]
    for rank in (0, 1):
        sent = sum(record["exchanged_bytes"] for record in records(run, "progressed", rank))
        # Two hosts send a whole gradient each; their parts are filled up to stretches of 256.
        assert exchanges * values * bytes_a_value <= sent <= exchanges * (values + 512) * bytes_a_value
        seen = sum(record["network_sent_bytes"] for record in records(run, "progressed", rank))
        assert seen >= sent


@pytest.mark.parametrize("way", cases(*zip(WAYS)))
@pytest.mark.parametrize("rank", [0, 1])
def test_the_parts_of_a_step_add_up_to_the_wall_clock(way: str, rank: int, train: Train) -> None:
    progressed = records(train(way).whole, "progressed", rank)
    times = [datetime.fromisoformat(record["time"]).timestamp() for record in progressed]
    accounted = sum(sum(record["seconds"].values()) for record in progressed[1:])
    assert accounted == pytest.approx(times[-1] - times[0], rel=0.02)
    for record in progressed:
        assert all(seconds >= 0 for seconds in record["seconds"].values())
    assert sum(record["seconds"]["communication"] for record in progressed) > 0
    assert sum(record["seconds"]["waiting"] for record in progressed) > 0 or way == "allreduce"


# --- what may go wrong


def test_a_host_that_lost_its_memory_says_so_and_goes_on(
    train: Train, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    trainings = train("int4")
    first, second = (
        shutil.copytree(run, tmp_path / name)
        for run, name in zip(trainings.at_the_break, ("first", "second"), strict=True)
    )
    shutil.rmtree(second / "hosts")
    said = finished(tiny_corpus, (first, second), TWO_HOSTS, *trainings.settings)
    assert "note: 1 of 2 hosts have no memory of int4 at this step; all of them begin with an empty one\n" in said
    left, right = weights(first, 6), weights(trainings.whole, 6)
    assert not torch.equal(left, right)
    torch.testing.assert_close(left, right, rtol=0.1, atol=0.05)


def test_a_run_that_ended_within_a_round_goes_on(train: Train, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """A longer run begins where the last one ended, which need not be where a round begins."""
    trainings = train("diloco")
    runs = tuple(
        shutil.copytree(run, tmp_path / name) for run, name in zip(trainings.broken, ("first", "second"), strict=True)
    )
    said = finished(tiny_corpus, (runs[0], runs[1]), TWO_HOSTS, *trainings.settings, "train.max_steps=13")
    assert "finished at step 13" in said
    assert "no memory" not in said
    assert [record["step"] for record in records(runs[0], "progressed")][-2:] == [12, 13]


def test_corpora_that_differ_are_refused_with_the_host_named(
    tiny_corpus: PreparedCorpus, demo_text: Path, tmp_path: Path
) -> None:
    files = (demo_text / "dev.en", demo_text / "dev.de")
    other = prepare(CorpusTexts([files], files), tmp_path / "other", CorpusConfig(vocab_size=400))
    runs = (tmp_path / "first", tmp_path / "second")
    ended = train_on_hosts([tiny_corpus, other], runs, TWO_HOSTS, *WAYS["bf16"])
    assert [process.returncode for process in ended] == [2, 2]
    assert ended[0].stderr == "tandem: the corpus on b is not the one on a; put the same on all hosts\n"
    assert ended[1].stderr == ""
    assert not any(run.exists() for run in runs)


# --- two hosts with two processes each


@pytest.fixture(scope="module")
def four_with_int4(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("four") / "run"
    finished(tiny_corpus, (run,) * 4, TWO_BY_TWO, *WAYS["int4"])
    return run


@pytest.fixture(scope="module")
def four_with_diloco(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    settings = (*SETTINGS, "exchange.kind=diloco", "exchange.local_steps=3", "exchange.start_steps=0")
    return trained(tiny_corpus, tmp_path_factory.mktemp("four"), TWO_BY_TWO, settings, last_step=6)


def test_more_processes_on_a_host_cost_the_network_nothing(four_with_int4: Path, train: Train) -> None:
    def sent(run: Path, rank: int) -> list[int]:
        return [record["exchanged_bytes"] for record in records(run, "progressed", rank)]

    for leader, follower, alone_on_host in ((0, 1, 0), (2, 3, 1)):
        # What a follower sends stays inside its host, and its leader sends as much there.
        between = [
            mine - inside
            for mine, inside in zip(sent(four_with_int4, leader), sent(four_with_int4, follower), strict=True)
        ]
        assert between == sent(train("int4").whole, alone_on_host)
        assert all(between)


def test_all_processes_of_all_hosts_agree(four_with_int4: Path, four_with_diloco: Trainings, alone: Path) -> None:
    for run in (four_with_int4, four_with_diloco.whole):
        losses = [[record["train_loss"] for record in records(run, "progressed", rank)] for rank in range(4)]
        assert losses[0] == losses[1] == losses[2] == losses[3]
    first = records(four_with_int4, "progressed")[0]["train_loss"]
    assert first == pytest.approx(records(alone, "progressed")[0]["train_loss"], rel=1e-5)
    assert sorted(path.name for path in (four_with_int4 / "hosts").iterdir()) == ["host-0", "host-1"]


def test_killed_or_not_local_steps_of_two_by_two_end_with_the_same_bits(four_with_diloco: Trainings) -> None:
    assert_same_end(four_with_diloco, (EXCHANGE_FILE, OPTIMIZER_FILE))
    assert [record["step"] for record in records(four_with_diloco.whole, "saved")] == [3, 6]
