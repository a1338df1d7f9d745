"""Which card falls to which process; what does not fit together is said once, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import Device, Told, one_sentence, records, run_ranks, succeeded, training

pytestmark = pytest.mark.slow

# A refusal that came only when the others have waited would run into the test's own time limit.
PATIENT = "cluster.join_seconds=3000"
SHORT = ("train.max_steps=1", PATIENT)


@pytest.fixture
def arguments(tiny_corpus: PreparedCorpus, tmp_path: Path) -> list[str]:
    return training(tiny_corpus, tmp_path, *SHORT)


def with_visible(visible: list[str], hosts: list[str], arguments: list[str], cards: int = 2) -> list[Told]:
    environments = [{"CUDA_VISIBLE_DEVICES": each} for each in visible]
    return run_ranks(hosts, Device(cards=cards), *arguments, environments=environments)


def test_one_visible_card_a_task(arguments: list[str], tmp_path: Path) -> None:
    """As Slurm's --gpus-per-task=1: everybody's card is number 0, and they are different cards."""
    succeeded(*with_visible(["0", "1"], ["one", "one"], arguments))
    assert [records(tmp_path, "started", rank)[0]["device"] for rank in (0, 1)] == ["cuda", "cuda"]


def test_two_processes_with_the_same_card(arguments: list[str]) -> None:
    sentence = one_sentence(with_visible(["0", "0"], ["vm1", "vm1"], arguments))
    assert sentence.startswith("tandem: ranks 0, 1 on vm1 were given the same GPU (GPU-")


def test_card_0_of_two_hosts_is_not_the_same_card(arguments: list[str]) -> None:
    succeeded(*with_visible(["0", "0"], ["vm1", "vm2"], arguments, cards=1))


def test_more_processes_than_cards(arguments: list[str]) -> None:
    sentence = one_sentence(run_ranks(["vm1"] * 3, Device(cards=2), *arguments))
    assert sentence == "tandem: rank 2 on vm1 has no GPU left: 2 are visible there; start 2 processes on that host"


def test_a_host_without_a_card(arguments: list[str]) -> None:
    sentence = one_sentence(with_visible(["0", ""], ["vm1", "vm2"], arguments, cards=1))
    assert sentence.startswith("tandem: rank 1 on vm2 sees no GPU, but rank 0 on vm1 does; mend the driver or CUDA_")


def test_no_card_anywhere_trains_on_processors(arguments: list[str], tmp_path: Path) -> None:
    succeeded(*with_visible(["", ""], ["vm1", "vm2"], arguments))
    assert records(tmp_path, "started")[0]["device"] == "cpu"
