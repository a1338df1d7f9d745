"""Two cards, and two hosts with two cards each: the same steps as one card, in every exchange strategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import (
    EXACT,
    ROUNDING,
    WITH_DROPOUT,
    Device,
    journal,
    largest_difference,
    records,
    run,
    run_ranks,
    succeeded,
    training,
    weights,
)

pytestmark = pytest.mark.slow

CARDS = Device(cards=2)
ONE_HOST = ("one", "one")
TWO_HOSTS = ("one", "one", "two", "two")


def test_two_and_four_cards_take_the_steps_of_one(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    settings = ("exchange.kind=allreduce", *EXACT)
    succeeded(run(Device(), *training(tiny_corpus, tmp_path / "1", *settings)))
    for hosts in (ONE_HOST, TWO_HOSTS):
        succeeded(*run_ranks(hosts, CARDS, *training(tiny_corpus, tmp_path / str(len(hosts)), *settings)))
        several = tmp_path / str(len(hosts))
        assert largest_difference(weights(several, 6), weights(tmp_path / "1", 6)) < ROUNDING
        started = [records(several, "started", rank)[0] for rank in range(len(hosts))]
        assert {record["device"] for record in started} == {"cuda"}
        assert started[0]["hosts"] == list(dict.fromkeys(hosts))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("int4", ()),
        ("diloco", ("exchange.local_steps=2", "exchange.start_steps=2")),
        pytest.param("allreduce", (), marks=pytest.mark.long),
        pytest.param("allreduce", ("train.precision=float16",), marks=pytest.mark.long),
        pytest.param("bf16", (), marks=pytest.mark.long),
        pytest.param("powersgd", ("exchange.powersgd_rank=2",), marks=pytest.mark.long),
        pytest.param("auto", (), marks=pytest.mark.long),
        pytest.param("bf16", ("train.precision=float16",), marks=pytest.mark.long),
    ],
)
def test_every_way_of_exchanging(
    kind: str, settings: tuple[str, ...], tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    """On two hosts with two cards each; all ranks report the same losses, which are finite and fall."""
    short = ("train.max_steps=4", "train.log_every=2", "checkpoint.every_steps=2")
    arguments = training(tiny_corpus, tmp_path, f"exchange.kind={kind}", *WITH_DROPOUT, *short, *settings)
    succeeded(*run_ranks(TWO_HOSTS, CARDS, *arguments))
    for rank in range(4):
        assert journal(tmp_path, rank)[-1]["reason"] == "finished"
    losses = [[record["train_loss"] for record in records(tmp_path, "progressed", rank)] for rank in range(4)]
    assert losses[0] == losses[1] == losses[2] == losses[3]
    assert losses[0][1] < losses[0][0]
    (planned,) = records(tmp_path, "planned")
    assert kind in ("auto", planned["exchange"])
    assert all(bool(tensor.isfinite().all()) for tensor in weights(tmp_path, 4).values())
