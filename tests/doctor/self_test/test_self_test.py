"""The self-test on the rehearsal device: everything passes, planted faults are noticed, and the page can be sent in."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rehearsal.build import available
from tandem.doctor.self_test.check_result import FAILED, NOT_APPLICABLE, PASSED, CheckResult, Outcome, anonymous
from tests.cluster.ranks import rank_environments
from tests.places import REPOSITORY
from tests.warm import WarmProcess, warm_server

TINY = (
    *("model.d_model=64", "model.heads=2", "model.d_ff=64", "model.encoder_layers=1", "model.decoder_layers=1"),
    *("model.dropout=0.1", "model.max_length=32", "batch.tokens=256", "batch.micro_batches=2"),
    "corpus.vocab_size=600",
)
# What no rehearsal can show: compiled kernels, and what CUDA says of synchronisations.
ON_REAL_CARDS_ONLY = {"torch.compile", "synchronisations"}
HOST = "a-host-of-ours"


@pytest.fixture(scope="module")
def compiled() -> None:
    """The rehearsal device, or a reason to skip."""
    if (reason := available()) is not None:
        pytest.skip(reason)


def start(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return WarmProcess(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "TANDEM_HOST": HOST, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        by=warm_server("tandem" if module == "tandem" else "rehearsal.device"),
    )


def command(directory: Path) -> tuple[str, ...]:
    return ("doctor", "demo", *TINY, "--self-test", "--seconds", "0.2", "--run", str(directory), "--json")


@pytest.mark.slow
def test_without_a_card_it_says_so() -> None:
    child = start("tandem", "doctor", "--self-test", environment={"CUDA_VISIBLE_DEVICES": ""})
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tandem: no NVIDIA card to test")


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@pytest.mark.long
def test_one_card(tmp_path: Path) -> None:
    child = start("rehearsal", "--cards", "1", "--", *command(tmp_path))
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    found = json.loads(out)
    statuses = {check["name"]: check["status"] for check in found["checks"]}
    missing = {name for name, status in statuses.items() if status == NOT_APPLICABLE}
    assert missing == {"NCCL", "NCCL, rate"} | ON_REAL_CARDS_ONLY
    assert set(statuses.values()) == {PASSED, NOT_APPLICABLE}
    assert "determinism ..." in err
    attention = next(check for check in found["checks"] if check["name"] == "attention")
    assert "causal in bfloat16: flash" in attention["found"]
    assert "with padding in bfloat16: efficient" in attention["found"]
    page = (tmp_path / "gpu-check.md").read_text()
    assert all(f"| {name} |" in page for name in statuses)
    for private in (HOST, socket.gethostname(), f"/{getpass.getuser()}/", str(tmp_path), str(REPOSITORY)):
        assert private not in page


@pytest.mark.long
@pytest.mark.usefixtures("compiled")
def test_an_older_card_has_no_bfloat16(tmp_path: Path) -> None:
    model = ("--name", "Tesla V100-SXM2-16GB", "--capability", "7.0", "--memory-gb", "16")
    child = start("rehearsal", *model, "--", *command(tmp_path))
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["kernels, bfloat16"]["status"] == NOT_APPLICABLE
    assert "auto takes float16" in checks["precision"]["found"]
    assert "bfloat16 is emulated" in checks["precision"]["found"]
    assert "causal in float16: efficient" in checks["attention"]["found"]


@pytest.mark.long
@pytest.mark.usefixtures("compiled")
def test_two_cards(tmp_path: Path) -> None:
    places = rank_environments([HOST, HOST])
    children = [start("rehearsal", "--cards", "2", "--", *command(tmp_path), environment=place) for place in places]
    outputs = [child.communicate(timeout=300) for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    assert outputs[1][0] == ""
    found = json.loads(outputs[0][0])
    assert found["processes"] == 2
    checks = {check["name"]: check for check in found["checks"]}
    assert {name for name, check in checks.items() if check["status"] != PASSED} == ON_REAL_CARDS_ONLY
    assert "8 collectives" in checks["NCCL"]["found"]
    assert "over 2 cards" in checks["NCCL, rate"]["found"]
    assert HOST not in (tmp_path / "gpu-check.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_faults_are_noticed_by_the_check_that_is_meant_to() -> None:
    child = start("tests.doctor.self_test.child", "faults")
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found["compiled"][0] == PASSED
    assert "times as fast" in found["compiled"][1]
    for fault, results in found["faults"].items():
        failed = [name for name, (status, _) in results.items() if status == FAILED]
        assert len(failed) == 1, (fault, results)
        assert failed != ["kernels, float32"], (fault, results)
        if fault == "damaged disk":
            # A check that raises is told in a line, without directories.
            assert results["resume"] == [FAILED, "OSError: model.safetensors: unreadable"]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_a_failed_check_is_the_exit_code(tmp_path: Path) -> None:
    child = start("tests.doctor.self_test.child", "bfloat16", *command(tmp_path))
    out, err = child.communicate(timeout=300)
    assert child.returncode == 1, err
    found = json.loads(out)
    assert found["passed"] is False
    assert [check["status"] for check in found["checks"]] == [PASSED, FAILED]
    assert "| kernels, bfloat16 |" in (tmp_path / "gpu-check.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_a_collective_that_does_nothing_is_noticed_by_whoever_gets_nothing(tmp_path: Path) -> None:
    places = rank_environments([HOST, HOST])
    arguments = ("tests.doctor.self_test.child", "broadcast", *command(tmp_path))
    children = [start(*arguments, environment=place) for place in places]
    outputs = [child.communicate(timeout=300) for child in children]
    assert [child.returncode for child in children] == [1, 1], outputs
    nccl = json.loads(outputs[0][0])["checks"][1]
    assert nccl["found"] == "rank 1: wrong results of broadcast of float32, broadcast of uint8"
    assert nccl["by_rank"][0]["status"] == PASSED


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_a_process_that_fails_in_an_exchange_keeps_nobody_waiting(tmp_path: Path) -> None:
    places = rank_environments([HOST, HOST])
    children = [
        start("tests.doctor.self_test.child", "lost", *command(tmp_path), environment=place) for place in places
    ]
    outputs = [child.communicate(timeout=300) for child in children]
    assert [child.returncode for child in children] == [1, 1], outputs
    broken, after, alone = json.loads(outputs[0][0])["checks"]
    assert broken["status"] == FAILED
    assert broken["by_rank"][1]["found"] == "RuntimeError: something broke here"
    assert (after["status"], alone["status"]) == (FAILED, PASSED)
    assert "not run" in after["found"]


def test_one_failure_fails_all_and_is_the_one_that_is_told() -> None:
    outcomes = [Outcome.of(True, "fine"), Outcome.of(False, "wrong"), Outcome.not_applicable("no")]
    result = CheckResult.of("check", "well", outcomes)
    assert (result.status, result.found) == (FAILED, "rank 1: wrong")
    assert CheckResult.of("check", "well", outcomes[::2]).status == PASSED
    assert CheckResult.of("check", "well", outcomes[2:]).status == NOT_APPLICABLE


def test_names_of_hosts_and_directories_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "vm7.example.org")
    said = "vm7: /home/ada/tandem/step.py: 3 tokens/s on vm7.example.org, vm77 is another"
    assert anonymous(said) == "HOST: step.py: 3 tokens/s on HOST, vm77 is another"
