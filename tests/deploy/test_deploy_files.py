"""The files of deploy/, read by the programs that they are written for, as far as those run without a cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.peer_environments import ENVIRONMENTS, why_missing
from tests.places import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
# A field that the interface does not have is dropped when it is read: what comes back must be what went in.
READ_TRAIN_JOB = """
import json, sys, yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
written = yaml.safe_load(open(sys.argv[1]))
read = TrainerV1alpha1TrainJob.from_dict(written).to_dict()
assert read == written, json.dumps([read, written])
"""
READ_SKYPILOT = """
import sys, sky
task = sky.Task.from_yaml(sys.argv[1])
print(task.num_nodes, *sorted(task.storage_mounts), all(wanted.use_spot for wanted in task.resources))
"""


def read_by(environment: str, code: str, file: Path, home: Path) -> str:
    if reason := why_missing(environment):
        pytest.skip(reason)
    # What such a program writes into its user's home is nobody's business here.
    env = os.environ | {"HOME": str(home)}
    env.pop("PYTHONPATH", None)
    command: list[str | Path] = [ENVIRONMENTS[environment].python, "-c", code, file]
    ended = subprocess.run(command, env=env, cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_batch_script_is_bash_and_asks_for_what_a_requeue_needs() -> None:
    script = DEPLOY / "slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    options = [line.removeprefix("#SBATCH ") for line in script.read_text().splitlines() if line.startswith("#SBATCH ")]
    assert {"--signal=B:USR1@60", "--requeue", "--open-mode=append"} <= set(options)


def test_kubeflow_reads_its_job(tmp_path: Path) -> None:
    read_by("kubeflow", READ_TRAIN_JOB, DEPLOY / "kubeflow-trainjob.yaml", tmp_path)


def test_skypilot_reads_its_task(tmp_path: Path) -> None:
    said = read_by("skypilot", READ_SKYPILOT, DEPLOY / "skypilot.yaml", tmp_path)
    assert said.splitlines()[-1] == "2 /runs True"


def test_both_name_a_preset_and_keep_torchrun_from_tandems_options() -> None:
    trainer = yaml.safe_load((DEPLOY / "kubeflow-trainjob.yaml").read_text())["spec"]["trainer"]
    run = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text())["run"]
    for words in ([*trainer["command"], *trainer["args"]], run.split()):
        assert "-m tandem -- train transformer-base --corpus" in " ".join(words)


def test_the_container_for_cards_is_the_one_that_is_tested_but_for_pytorch() -> None:
    tested, for_cards = (
        {line for line in (DEPLOY / name).read_text().splitlines() if not line.startswith("#")}
        for name in ("Containerfile", "Containerfile.cuda")
    )
    assert tested - for_cards == {
        "ARG TORCH=",
        "RUN pip install --no-cache-dir ${TORCH} torch~=2.13.0",
    }
    assert for_cards - tested == {
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "RUN pip install --no-cache-dir torch~=2.13.0",
    }
