"""Real servers for tests: a process that listens on a free port, and what is asked of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tandem.training.checkpoints.checkpoint import Checkpoint
from tandem.training.checkpoints.restore import load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_weights import CTRANSLATE2_FILES, write_ctranslate2
from tandem.translation.exported_folder import ExportFacts, described_file, write_facts
from testbed.server_process import server_command
from tests.warm import WarmProcess

# Seconds after which what was waited for will not come.
NEVER = 300


@dataclass
class RunningServer:
    """A server process."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, trust_env=False)

    def translate(self, q: object, **fields: object) -> Any:
        """The answer to a JSON request for English to German."""
        with self.client() as client:
            answer = client.post("/translate", json={"q": q, "source": "en", "target": "de", **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metric(self, name: str) -> float:
        """The sum of a metric's samples; 0 if it has none yet."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def wait_for(self, name: str, least: float, most: float = float("inf")) -> None:
        """Wait until a metric lies between two values; one that stays there, or it may be missed."""
        self.wait_until(lambda: least <= self.metric(name) <= most)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; fail if the server ends before, or if it never does."""
        deadline = time.monotonic() + NEVER
        while not holds():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=120)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end, and for its exit code."""
        return self.process.wait(120)


@contextmanager
def running(
    models: Sequence[Path], log: Path, environment: Mapping[str, str] | None = None, **settings: object
) -> Iterator[RunningServer]:
    """A server of some models that listens on a free port until the end."""
    with (
        log.open("w") as errors,
        WarmProcess(
            server_command(models, **{"port": 0, "threads": 2, **settings}),
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("listening on "):
                    yield RunningServer(process, line.split()[2], log)
                    break
            else:
                raise AssertionError(f"the server did not start: {log.read_text()}")
        finally:
            process.kill()


def export_checkpoint(
    run: Run, checkpoint: Checkpoint, folder: Path, languages: tuple[str, str] = ("en", "de")
) -> None:
    """An exported folder of a checkpoint; one that is there is replaced, its facts last."""
    import torch

    folder.mkdir(exist_ok=True)
    write_ctranslate2(load_model(run, checkpoint, torch.device("cpu")), run.tokenizer(), folder, "float32")
    (folder / "tokenizer.model").write_bytes((run.directory / "tokenizer.model").read_bytes())
    facts = ExportFacts(
        tandem="0",
        quantization="float32",
        source_language=languages[0],
        target_language=languages[1],
        step=checkpoint.step,
        max_length=run.config.model.max_length,
        search=run.config.search,
        files={name: described_file(folder / name) for name in (*CTRANSLATE2_FILES, "tokenizer.model")},
    )
    write_facts(folder, facts)
