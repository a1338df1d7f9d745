"""What a host keeps for itself: there for the checkpoint it belongs to, and for no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tandem.cluster.exchange.exchange import Exchange, Exchanged, Votes
from tandem.cluster.exchange.strategy import ExchangePlan
from tandem.cluster.world import World
from tandem.config import Config, ExchangeConfig
from tandem.layout import EXCHANGE_FILE
from tandem.training.checkpoints import exchange_state as exchange_state_module
from tandem.training.checkpoints.checkpoint import write
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.train_state import TrainState

ALONE = World(0, 1, torch.device("cpu"))
INT4 = ExchangePlan("int4")
SETTINGS = ExchangeConfig()


class Remembering(Exchange):
    """Remembers a number."""

    def __init__(self, number: float = 0.0) -> None:
        self.number = torch.tensor(number)

    def before_backward(self, step: int, *, first: bool, last: bool, passes: int = 1) -> None:
        pass

    def after_backward(self, step: int, mine: Votes) -> Exchanged:
        return Exchanged()

    def vote(self, step: int, *numbers: float) -> list[float]:
        return list(numbers)

    def pop_sent_bytes(self) -> int:
        return 0

    def state_tensors(self) -> dict[str, Tensor]:
        return {"number": self.number}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.number = tensors["number"]


class Forgetful(Remembering):
    """Has nothing to remember."""

    def state_tensors(self) -> dict[str, Tensor]:
        return {}


@pytest.fixture
def state(tiny_config: Callable[..., Config]) -> TrainState:
    return TrainState.fresh(tiny_config(), 600, ALONE.device)


def save(exchange_state: ExchangeState, state: TrainState, *steps: int) -> None:
    """Keep a number at each of these steps: the step itself."""
    for step in steps:
        state.progress.step = step
        save_one(exchange_state, state, Remembering(step))


def save_one(exchange_state: ExchangeState, state: TrainState, exchange: Exchange) -> None:
    if writing := exchange_state.saving(state, exchange):
        writing()
    exchange_state.prune()


def restored(exchange_state: ExchangeState, state: TrainState, step: int) -> float | None:
    """The number that is restored with the checkpoint of a step, if there is any."""
    state.progress.step = step
    exchange = Remembering()
    hosts_without = exchange_state.restore(state, exchange)
    return None if hosts_without else float(exchange.number)


def test_each_checkpoint_has_its_own_memory(state: TrainState, tmp_path: Path) -> None:
    exchange_state = ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2)
    save(exchange_state, state, 4, 8)
    assert restored(exchange_state, state, 8) == 8
    assert restored(exchange_state, state, 4) == 4
    # A run that has gone back to step 4 will come to step 8 again, with another exchange_state perhaps.
    assert restored(exchange_state, state, 8) is None


def test_before_the_first_step_there_is_nothing_to_miss(state: TrainState, tmp_path: Path) -> None:
    assert restored(ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2), state, 0) == 0


def test_whoever_remembers_nothing_keeps_and_misses_nothing(state: TrainState, tmp_path: Path) -> None:
    exchange_state = ExchangeState(tmp_path, ALONE, ExchangePlan("bf16"), SETTINGS, keep_last=2)
    state.progress.step = 4
    save_one(exchange_state, state, Forgetful())
    assert list(tmp_path.iterdir()) == []
    assert exchange_state.restore(state, Forgetful()) == 0


def test_old_memories_go(state: TrainState, tmp_path: Path) -> None:
    save(ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2), state, *range(4, 40, 4))
    kept = sorted(path.name for path in (tmp_path / "hosts/host-0").iterdir())
    assert kept[-2:] == ["step-00000032", "step-00000036"]
    assert len(kept) <= 3


@pytest.mark.parametrize("keep_last", [1, 2])
def test_a_kill_between_memory_and_checkpoint_loses_nothing(keep_last: int, state: TrainState, tmp_path: Path) -> None:
    """The state of step 8 is written before its checkpoint: until that is whole, the run goes on from step 4."""
    exchange_state = ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=keep_last)
    save(exchange_state, state, 4, 8)
    assert restored(exchange_state, state, 4) == 4


@pytest.mark.parametrize("plan", [ExchangePlan("powersgd"), ExchangePlan("diloco", 16)])
def test_the_memory_of_another_way_is_of_no_use(plan: ExchangePlan, state: TrainState, tmp_path: Path) -> None:
    save(ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2), state, 4)
    assert restored(ExchangeState(tmp_path, ALONE, plan, SETTINGS, keep_last=2), state, 4) is None


def test_nor_is_that_among_another_number_of_hosts(state: TrainState, tmp_path: Path) -> None:
    save(ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2), state, 4)
    # The second host is only spoken of: nobody could answer for it here.
    two_hosts = World(0, 1, ALONE.device, hosts=((0,), (1,)), host_names=("a", "b"))
    assert restored(ExchangeState(tmp_path, two_hosts, INT4, SETTINGS, keep_last=2), state, 4) is None


@pytest.mark.parametrize("setting", [{"deltas": "bf16"}, {"powersgd_rank": 8}])
def test_nor_is_that_of_other_settings(setting: dict[str, Any], state: TrainState, tmp_path: Path) -> None:
    save(ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2), state, 4)
    other = SETTINGS.model_copy(update=setting)
    assert restored(ExchangeState(tmp_path, ALONE, INT4, other, keep_last=2), state, 4) is None


def test_the_memories_of_a_run_that_was_deleted_go(state: TrainState, tmp_path: Path) -> None:
    exchange_state = ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=1)
    save(exchange_state, state, 9000, 9500)
    assert restored(exchange_state, state, 0) == 0
    save(exchange_state, state, 4)
    assert restored(exchange_state, state, 4) == 4


def test_nor_is_a_damaged_one(state: TrainState, tmp_path: Path) -> None:
    exchange_state = ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2)
    save(exchange_state, state, 4)
    file = tmp_path / "hosts/host-0/step-00000004" / EXCHANGE_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert restored(exchange_state, state, 4) is None


def test_two_threads_that_save_one_step_do_not_write_into_each_other(
    state: TrainState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emergency begins to save a step while the background thread is writing it."""
    exchange_state = ExchangeState(tmp_path, ALONE, INT4, SETTINGS, keep_last=2)
    state.progress.step = 4
    began, go_on, written = threading.Event(), threading.Event(), []
    real = write

    def held_up(directory: Path, *arguments: Any) -> object:
        written.append(directory.name)
        began.set()
        assert go_on.wait(60)
        return real(directory, *arguments)

    monkeypatch.setattr(exchange_state_module, "write", held_up)
    with ThreadPoolExecutor(2) as threads:
        writing = exchange_state.saving(state, Remembering(4))
        assert writing is not None
        saves = [threads.submit(writing)]
        assert began.wait(60)
        emergency = threads.submit(exchange_state.write, 4, exchange_state.files(state, Remembering(4)))
        go_on.set()
        for save in (*saves, emergency):
            save.result()
    assert written == ["step-00000004"]
    assert restored(exchange_state, state, 4) == 4
