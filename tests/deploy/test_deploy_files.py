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


@pytest.mark.parametrize(
    ("srun", "restarts", "code", "asked"),
    [
        ("exit 0", None, 0, []),
        ("exit 2", None, 2, []),
        ("exit 143", None, 143, []),
        ("exit 138", "30", 0, ["scontrol requeue 7"]),
        ("exit 75", None, 0, ["scontrol requeue 7"]),
        ("exit 75", "19", 0, ["scontrol requeue 7"]),
        ("exit 75", "20", 75, []),
        # As soon as there is a step, the script hears what Slurm sends before the time limit.
        ("kill -USR1 $PPID; exit 143", None, 0, ["scancel --signal=TERM 7", "scontrol requeue 7"]),
    ],
)
def test_when_the_batch_script_requeues_its_job(
    srun: str, restarts: str | None, code: int, asked: list[str], tmp_path: Path
) -> None:
    programs, log = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    log.touch()
    for name, does in {"srun": srun, "scancel": "", "scontrol": ""}.items():
        program = programs / name
        program.write_text(f"#!/bin/bash\n{does or f'echo {name} $* >> {log}'}\n")
        program.chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1"}
    if restarts is not None:
        env["SLURM_RESTART_COUNT"] = restarts
    ended = subprocess.run(["bash", DEPLOY / "slurm.sbatch", "demo"], env=env, timeout=60)
    assert ended.returncode == code
    assert log.read_text().splitlines() == asked


def test_kubeflow_reads_its_job(tmp_path: Path) -> None:
    read_by("kubeflow", READ_TRAIN_JOB, DEPLOY / "kubeflow-trainjob.yaml", tmp_path)


def test_skypilot_reads_its_task(tmp_path: Path) -> None:
    said = read_by("skypilot", READ_SKYPILOT, DEPLOY / "skypilot.yaml", tmp_path)
    assert said.splitlines()[-1] == "2 /mirror True"


def test_skypilots_run_is_on_a_disk_and_its_mirror_in_the_bucket() -> None:
    task = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text())
    ((bucket, mount),) = task["file_mounts"].items()
    words = task["run"].split()
    assert mount["mode"] == "MOUNT_CACHED"
    assert f"checkpoint.mirror={bucket}/wmt16" in words
    assert not words[words.index("--run") + 1].startswith(bucket)


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
