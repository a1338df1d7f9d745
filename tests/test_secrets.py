"""Secrets in the environment stay there: no file, line, page or process list ever shows one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tandem.corpus.prepared import PreparedCorpus
from testbed.network_rig import Rig, mpirun_unavailable, unavailable
from tests.conftest import TINY

pytestmark = pytest.mark.slow

CANARY = "canary-5c1d0e"
SECRETS = {
    name: f"{CANARY}-{name}" for name in ("TANDEM_TOKEN", "TANDEM_API_KEYS", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN")
}
# More steps than anybody waits for.
ENDLESS = ("train.max_steps=1000000", "evaluation.every_steps=1000000")


def tandem(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tandem", *arguments]


def train(corpus: PreparedCorpus, run: Path, *settings: str) -> list[str]:
    return ["train", "demo", *TINY, *settings, "--corpus", str(corpus.directory), "--run", str(run)]


def said(*arguments: str, code: int = 0) -> str:
    """All that a command prints."""
    ended = subprocess.run(
        tandem(*arguments), env=os.environ | SECRETS, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout + ended.stderr


@contextmanager
def running(process: subprocess.Popen[str], until: str) -> Iterator[list[str]]:
    """What a process has printed up to a line that begins so, and at the end of the block all of it."""
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while not lines or until not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        yield lines
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        tandem(*arguments),
        env=os.environ | SECRETS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def shown_by_ps() -> list[str]:
    """Command lines of the machine's processes in which a secret stands, as everybody on it can read them."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if CANARY in line]


def written(*places: Path) -> list[Path]:
    """Files in which a secret stands."""
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if CANARY.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def run(tiny_corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained and stopped with secrets in its environment."""
    directory = tmp_path_factory.mktemp("secret") / "run"
    with running(started(*train(tiny_corpus, directory, *ENDLESS)), "step 2/") as printed:
        assert shown_by_ps() == []
    assert CANARY not in "".join(printed)
    return directory


def test_training_and_its_report(run: Path, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    assert CANARY not in said("report", str(run))
    assert CANARY not in said("report", str(run), "--json")
    assert (run / "report.html").is_file()
    assert (run / "tensorboard").is_dir()
    assert written(run) == []
    # An error names what is at fault, and nothing else.
    for wrong in (["train.max_stepz=1"], ["monitor.views=[no_such_module:View]"], ["model.heads=3"]):
        assert CANARY not in said(*train(tiny_corpus, tmp_path / "run", *wrong), code=2)


def test_the_doctor(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    place = ["--corpus", str(tiny_corpus.directory), "--run", str(tmp_path / "run")]
    ended = subprocess.run(
        tandem("doctor", "demo", *TINY, *place, "--json"), env=os.environ | SECRETS, capture_output=True, text=True
    )
    assert ended.returncode in (0, 1), ended.stderr
    assert CANARY not in ended.stdout + ended.stderr


def test_the_server(run: Path) -> None:
    with running(started("serve", str(run), "--port", "0"), "listening") as printed:
        found = re.search(r"http://\S+", printed[-1])
        assert found, printed
        assert shown_by_ps() == []
        key, wrong = SECRETS["TANDEM_API_KEYS"], f"{CANARY}-wrong-key"
        with httpx.Client(base_url=found[0].rstrip("/"), timeout=120, trust_env=False) as client:
            question = {"q": "A dog.", "source": "en", "target": "de"}
            answers = [client.post("/translate", json={**question, "api_key": asked}) for asked in (key, wrong)]
            answers += [client.get(path) for path in ("/", "/metrics", "/languages", "/openapi.json", "/nowhere")]
    assert [answer.status_code for answer in answers[:2]] == [200, 403]
    assert all(CANARY not in answer.text + str(answer.headers) for answer in answers)
    assert CANARY not in "".join(printed)


def test_launching_over_ssh(tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    if reason := unavailable() or mpirun_unavailable():
        pytest.skip(reason)
    with Rig() as rig:
        ssh = ["--ssh", f"ssh -F {rig.serve_ssh().config}"]
        command = tandem("launch", "-H", "vm1,vm2", *ssh, "--", *train(tiny_corpus, tmp_path / "run", *ENDLESS))
        process = rig.run(rig.hosts[0], command, SECRETS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with running(process, "step 2/") as printed:
            in_process_list = shown_by_ps()
    assert CANARY not in "".join(printed)
    assert written(tmp_path / "run") == []
    assert in_process_list == []
