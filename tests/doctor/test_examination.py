"""The whole examination: alone, and by real processes on two make-believe hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.doctor import examination
from tandem.doctor.doctor_text import show_diagnosis
from tandem.doctor.examination import examine
from tandem.doctor.machine import Gpu
from tandem.errors import SaidElsewhereError, TandemError
from tandem.model.memory_estimate import largest_tokens
from tandem.training.batches import check_everyone_has_work
from tests.cluster.ranks import rank_environments
from tests.conftest import TINY
from tests.doctor.test_diagnosis import GB, MACHINE
from tests.warm import WarmProcess


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures need not be good here."""
    monkeypatch.setattr(examination, "CALIBRATION_SECONDS", 0.5)


@pytest.mark.slow
def test_alone_with_a_corpus(tiny_config: Callable[..., Config], tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    stages = []
    diagnosis = examine(
        tiny_config(),
        tiny_corpus.directory,
        2.0,
        tmp_path / "not" / "there" / "yet",
        lambda stage, done, total, unit="": stages.append((stage, done)),
    )
    names = ("machines", "corpus", "steps without exchange", "sums over the network")
    assert stages == [(name, done) for name in names for done in (0, 1)]
    assert diagnosis.machines[0].disk == str(tmp_path)
    assert diagnosis.network is None
    assert diagnosis.reading is not None
    assert diagnosis.reading.mb_per_second > 0
    (prediction,) = diagnosis.predictions
    assert prediction.cost == pytest.approx(2 * prediction.hours)
    assert prediction.hours * 3600 == pytest.approx(12 * diagnosis.computing.together_seconds)
    # What a second host would mean, at three rates.
    assert [link.mbit for link in diagnosis.other_links] == [100, 1_000, 10_000]
    assert not diagnosis.reasons_against
    answer = json.loads(json.dumps(diagnosis.as_dict(), allow_nan=False))
    assert answer["advises_against"] is False


def test_people_read_the_same_figures(tiny_config: Callable[..., Config], tmp_path: Path) -> None:
    diagnosis = examine(tiny_config("corpus.vocab_size=600"), None, 3.0, tmp_path)
    console = Console(width=160, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        show_diagnosis(diagnosis, console)
    text = captured.get()
    assert "made-up sentences" in text
    assert f"{diagnosis.needs.parameters:,} parameters" in text
    assert diagnosis.advice in text
    assert "cost at $3.00 a machine-hour x 1" in text
    assert "with a second host like this one" in text
    cores = diagnosis.machines[0].cores
    assert f"({cores} core{'s' if cores > 1 else ''})" in text


@pytest.mark.slow
def test_a_disk_too_small_is_advised_against(tiny_config: Callable[..., Config], tmp_path: Path) -> None:
    diagnosis = examine(tiny_config("checkpoint.keep_last=100000000"), None, None, tmp_path)
    assert "lower checkpoint.keep_last" in diagnosis.reasons_against[0]


def test_the_memory_of_gpus_is_estimated_for_the_smallest(tiny_config: Callable[..., Config]) -> None:
    machines = [replace(MACHINE, gpus=(Gpu("a card", size),)) for size in (16 * GB, 8 * GB)]
    needs = examination.needs_of_run(tiny_config(), 100_000, 600, machines)
    assert needs.gpu_memory is not None
    # Between hosts, the exchange may need vectors as long as the gradient.
    assert needs.gpu_memory.exchange_buffers > 0
    assert needs.fitting is not None
    assert needs.fitting.tokens == largest_tokens(tiny_config(), 600, 8 * GB)
    assert examination.needs_of_run(tiny_config(), 100_000, 600, [MACHINE]).gpu_memory is None


def _examined(hosts: list[str], *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    command = [sys.executable, "-m", "tandem", "doctor", "demo", *TINY, *arguments, "--json"]
    processes = [
        WarmProcess(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for environment in rank_environments(hosts)
    ]
    said = [process.communicate(timeout=120) for process in processes]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *streams)
        for process, streams in zip(processes, said, strict=True)
    ]


@pytest.mark.slow
def test_two_hosts_examine_each_other(tiny_corpus: PreparedCorpus) -> None:
    """Three processes: the first of each host speaks for it, and the first of all to the user."""
    leading, *others = _examined(["vm1", "vm1", "vm2"], "--corpus", str(tiny_corpus.directory))
    assert [other.stdout + other.stderr for other in others] == ["", ""]
    assert leading.stderr.splitlines()[-1] == "sums over the network ..."
    diagnosis: dict[str, Any] = json.loads(leading.stdout)
    assert [(machine["host"], machine["processes"]) for machine in diagnosis["machines"]] == [("vm1", 2), ("vm2", 1)]
    assert len(diagnosis["computing"]["process_seconds"]) == 3
    assert set(diagnosis["network"]["measured"]) == {"allreduce", "bf16", "int4"}
    assert [each["kind"] for each in diagnosis["predictions"]][:3] == ["allreduce", "bf16", "int4"]
    assert sum(each["chosen"] for each in diagnosis["predictions"]) == 1
    # Three usual links, and ten times less and more than this one.
    assert len(diagnosis["other_links"]) == 5


def test_what_training_would_refuse_is_refused_once(tiny_config: Callable[..., Config]) -> None:
    first, second = (World(rank, 2, torch.device("cpu")) for rank in (0, 1))
    with pytest.raises(TandemError, match=r"1 cannot keep 2 processes busy; batch\.micro_batches=2"):
        check_everyone_has_work(tiny_config("batch.micro_batches=1"), first)
    with pytest.raises(SaidElsewhereError):
        check_everyone_has_work(tiny_config("batch.micro_batches=1"), second)
    check_everyone_has_work(tiny_config(), first)
