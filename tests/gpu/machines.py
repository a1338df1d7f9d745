"""Commands on the rehearsal device: alone on a card, or as ranks on hosts with several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tandem.corpus.prepared import PreparedCorpus
from testbed.journals import read_journal
from tests import warm
from tests.cluster.ranks import rank_environments
from tests.places import REPOSITORY

# One of everything: a rehearsed step costs as much as a real one and ten times the dispatch.
NARROW = (
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.heads=2",
    "model.d_ff=64",
    "model.max_length=32",
    "model.compile=off",
    "batch.tokens=128",
    "batch.micro_batches=4",
    "schedule.kind=inverse_sqrt",
    "schedule.warmup_steps=4",
    "train.precision=bfloat16",
    "train.max_steps=6",
    "train.log_every=3",
    "search.beam=1",
    "evaluation.every_steps=1000",
    "evaluation.samples=0",
    "checkpoint.every_steps=3",
)
WITHOUT_DROPOUT = ("model.dropout=0.0", "model.attention_dropout=0.0", "model.activation_dropout=0.0")
WITH_DROPOUT = ("model.dropout=0.1", "model.attention_dropout=0.1", "model.activation_dropout=0.1")
# Steps that two devices, or another number of processes, compute alike to rounding: Adam's epsilon keeps rounding in
# gradients that are zero but for rounding small.
EXACT = (*WITHOUT_DROPOUT, "train.precision=float32", "optimizer.epsilon=1e-6")
ROUNDING = 1e-5
TIMEOUT = 300
Told = subprocess.CompletedProcess[str]
Process = subprocess.Popen[str]


@dataclass(frozen=True)
class Device:
    """The cards of a host, and what is to be done with what they count."""

    cards: int = 1
    capability: str = "8.0"
    name: str = "NVIDIA A100-SXM4-80GB"
    memory_gb: float = 80.0
    counts: Path | None = None
    """File for the counts of a process."""
    module: str | None = None
    """Run this module of tests/gpu on the device instead of tandem's command line."""

    def arguments(self, *arguments: str) -> list[str]:
        """Arguments of `python -m rehearsal` to run a command on the device."""
        options = ["--cards", str(self.cards), "--capability", self.capability, "--name", self.name]
        options += ["--memory-gb", str(self.memory_gb)]
        options += [] if self.counts is None else ["--counts", str(self.counts)]
        options += [] if self.module is None else ["--module", f"tests.gpu.{self.module}"]
        return [*options, "--", *arguments]


V100 = Device(capability="7.0", name="Tesla V100-SXM2-16GB", memory_gb=16.0)


def training(corpus: PreparedCorpus, run: Path, *overrides: str) -> list[str]:
    """Arguments that train the narrow model."""
    return ["train", "demo", *NARROW, *overrides, "--corpus", str(corpus.directory), "--run", str(run)]


def run(device: Device | None, *arguments: str, text: str | None = None, **environment: str) -> Told:
    """Run a command to its end, on a device or, without one, as it is."""
    more = {**os.environ, **environment}
    if device is None:
        return warm.run([sys.executable, "-W", "ignore", "-m", "tandem", *arguments], env=more, timeout=TIMEOUT)
    with _started(device, arguments, more) as process:
        return _finished(process, text)


def run_ranks(
    hosts: Sequence[str],
    devices: Device | Sequence[Device],
    *arguments: str,
    environments: Sequence[Mapping[str, str]] = (),
) -> list[Told]:
    """Run a command as one rank on each of these hosts to its end, whatever the end is; what each rank said."""
    each = [devices] * len(hosts) if isinstance(devices, Device) else devices
    more = environments or [{}] * len(hosts)
    ranks = zip(each, rank_environments(hosts), more, strict=True)
    with ExitStack() as stack:
        started = [
            stack.enter_context(_started(device, arguments, {**place, **extra})) for device, place, extra in ranks
        ]
        return [_finished(process) for process in started]


@contextmanager
def started_ranks(hosts: Sequence[str], device: Device, *arguments: str) -> Iterator[list[Process]]:
    """The same as processes that a test can watch and kill; none outlives the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(_started(device, arguments, place)) for place in rank_environments(hosts)]


@contextmanager
def _started(device: Device, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Process]:
    process = warm.WarmProcess(
        [sys.executable, "-W", "ignore", "-m", "rehearsal", *device.arguments(*arguments)],
        by=warm.warm_server("rehearsal.device"),
        cwd=REPOSITORY,
        env={**environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        # Reads what is left and closes the pipes, if nobody has.
        process.communicate()


def _finished(process: Process, text: str | None = None) -> Told:
    """Wait for the end."""
    out, err = process.communicate(text, timeout=TIMEOUT)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def succeeded(*told: Told) -> None:
    """Insist that all ended well."""
    for each in told:
        assert each.returncode == 0, each.stderr + each.stdout


def one_sentence(told: Sequence[Told]) -> str:
    """The one line that one of the processes has said; all must have ended with code 2."""
    assert [each.returncode for each in told] == [2] * len(told), [each.stderr for each in told]
    lines = [line for each in told for line in each.stderr.splitlines()]
    assert len(lines) == 1, lines
    return lines[0]


def journal(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    """A rank's records."""
    return list(read_journal(run / f"journal/rank-{rank}.jsonl"))


def records(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    """A rank's records of one kind."""
    return [record for record in journal(run, rank) if record["kind"] == kind]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    """The model that a run has saved after a step."""
    return load_file(run / f"checkpoints/step-{step:08d}/model.safetensors")


def largest_difference(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Between two models, weight by weight."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def counts(path: Path) -> dict[str, dict[str, int]]:
    """The counters that a process has written."""
    read: dict[str, dict[str, int]] = json.loads(path.read_text())
    return read
