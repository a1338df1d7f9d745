"""Faults that a programmer could make on a machine without a card: each one is caught by a short training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests.gpu.machines import WITH_DROPOUT, Device, counts, records, run, run_ranks, training
from tests.gpu.steps import faults, observed_steps

pytestmark = pytest.mark.slow


def train_with(fault: str, corpus: PreparedCorpus, directory: Path, ranks: int = 1) -> str:
    """Three steps with a fault; what the first process said on its standard error."""
    arguments = training(corpus, directory / "run", *WITH_DROPOUT, "train.max_steps=3")
    observed = Device(cards=ranks, module="observed")
    told = run_ranks(["one"] * ranks, observed, str(directory), f"fault={fault}", "--", *arguments)
    assert all((each.returncode == 0) == (each.stderr == "") for each in told), told[0].stderr
    return told[0].stderr


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("float32-mask", "invalid dtype for bias - should match query's dtype"),
        ("labels-on-the-host", "Expected all tensors to be on the same device"),
    ],
)
def test_what_a_card_refuses(fault: str, error: str, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    assert error in train_with(fault, tiny_corpus, tmp_path)


@pytest.mark.parametrize(
    ("fault", "said", "ranks"),
    [
        ("control-messages-on-the-card", "waits for something else than the results of the step before", 2),
        ("pageable-batches", "copies from memory that is not pinned", 1),
        ("item-in-the-loss", "waits for the device", 1),
        ("float64-in-the-loss", "computes in float64", 1),
        ("places-as-a-list", "waits for something else than the results of the step before", 1),
        ("causal-mask-for-flash", "keeps the decoder's own attention from Flash", 1),
    ],
)
def test_what_a_card_does_slowly(
    fault: str, said: str, ranks: int, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    assert train_with(fault, tiny_corpus, tmp_path, ranks) == ""
    found = [found for step in observed_steps(tmp_path) for found in faults(step)]
    assert any(sentence.startswith(said) for sentence in found), found


def test_results_read_before_they_have_arrived(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    """Pinned memory holds garbage until the copy has arrived, which looks like a guard that has closed."""
    assert "the gradient is not finite" in train_with("numbers-read-too-early", tiny_corpus, tmp_path)


def test_a_search_that_looks_too_often(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    totals = []
    for name in ("looks-at-every-position", "nothing"):
        counted = Device(module="patched", counts=tmp_path / f"{name}.json")
        arguments = training(tiny_corpus, tmp_path / name, "train.max_steps=1")
        assert run(counted, name, *arguments).returncode == 0
        assert records(tmp_path / name, "evaluated")
        waits = counts(tmp_path / f"{name}.json")["synchronisations"]
        totals.append(sum(times for wait, times in waits.items() if "model/search.py" in wait))
    assert totals[0] > 3 * totals[1]
