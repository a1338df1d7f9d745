"""Names of the files and directories that Tandem writes. Every room spells them by this module alone.

A corpus, made by `tandem prepare`:

    corpus.json      facts, settings, sizes and digests of the other files
    tokenizer.model  the joint vocabulary
    train/ dev/ ...  shards of token ids

A run, made by `tandem train`:

    config.yaml      the resolved settings
    run.json         the corpus the run learns from
    tokenizer.model  its tokenizer, so that the run translates without the corpus
    checkpoints/     the newest states, to resume from: step-00004000/ and so on
    best/            the best weights by checkpoint.best_by
    start/           the state that it began with, if it went on from another run's model
    averaged/        what `tandem average` made
    choices.json     what was settled at the start where the settings say `auto`
    exchange.json    the exchange strategy, where the settings leave it to be found out
    settled.json     the newest step whose checkpoint all hosts have their parts of
    hosts/           state of the exchange strategy that each host keeps for itself
    journal/         the event log of every rank: rank-0.jsonl and so on; the stacks of one that hung: rank-0.stack
    tensorboard/     event files
    translations/    of test sets, which `tandem compare` keeps: a file for each model, search and text
    wandb/           what W&B keeps of its run, and sends if it may
    wandb.json       the run's counterpart at W&B and how far it was told; mlflow.json the same at MLflow

An exported model, made by `tandem export --to ctranslate2`:

    tandem.json      facts, sizes and digests of the other files
    tokenizer.model  its tokenizer
    README.md        the model card
    translations/    as in a run
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

CORPUS_FILE = "corpus.json"
# `tandem prepare` alone would refuse a place where there is a corpus.
CORPUS_REMEDY = "copy the corpus again or make it with `tandem prepare --overwrite`"
TOKENIZER_FILE = "tokenizer.model"

CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
LOCK_FILE = ".lock"
LEASE_FILE = ".lease"
HOSTS_DIRECTORY = "hosts"
JOURNALS = "journal"

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
# The weights that steps change, where those of MODEL_FILE are their moving average.
UNAVERAGED_FILE = "unaveraged.safetensors"
STATE_FILE = "state.json"
# In the form that `sha256sum -c` reads.
SUMS_FILE = "SHA256SUMS"
EXCHANGE_FILE = "exchange.safetensors"

EXPORT_FILE = "tandem.json"
MODEL_CARD = "README.md"

REPORT_PAGE, REPORT_MARKDOWN, REPORT_DATA = "report.html", "report.md", "report.json"
COMPARISON_PAGE, COMPARISON_MARKDOWN, COMPARISON_DATA = "compare.html", "compare.md", "compare.json"

TRACKING_SERVICES = ("wandb", "mlflow")

_CHECKPOINT = re.compile(r"step-(\d{8,})")
_JOURNAL = re.compile(r"rank-(\d+)\.jsonl")


class RunPaths:
    """Where everything lies in a run's directory, whether or not this host has the whole run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config_file = directory / CONFIG_FILE
        self.run_file = directory / RUN_FILE
        self.lock_file = directory / LOCK_FILE
        self.choices_file = directory / "choices.json"
        self.exchange_file = directory / "exchange.json"
        self.settled_file = directory / "settled.json"
        self.checkpoints = directory / "checkpoints"
        self.best = directory / "best"
        self.start = directory / "start"
        self.averaged = directory / "averaged"
        self.tensorboard = directory / "tensorboard"
        self.wandb = directory / "wandb"
        self.journals = directory / JOURNALS
        self.translations = kept_translations(directory)

    def small_files(self) -> list[Path]:
        """What a run needs beside its checkpoints; the file by which it is known as a run comes last."""
        chosen = (self.choices_file, self.exchange_file, self.settled_file)
        told = map(self.told_file, TRACKING_SERVICES)
        return [self.directory / TOKENIZER_FILE, self.config_file, *chosen, *told, self.run_file]

    def told_file(self, service: str) -> Path:
        """What a tracking service knows of the run."""
        return self.directory / f"{service}.json"

    def host_state(self, host: int) -> Path:
        """What a host keeps for itself beside the checkpoints."""
        return self.directory / HOSTS_DIRECTORY / f"host-{host}"


def kept_translations(directory: Path) -> Path:
    """Where the translations of test sets by a run, or by an exported model, lie."""
    return directory / "translations"


def comparison_directory(names: Sequence[str]) -> Path:
    """Where a comparison of these lies, if nobody says where: here, under their names."""
    first, second, *others = (name.replace("/", "-") for name in names)
    return Path("-".join(["compare", first, second, *([f"and-{len(others)}-more"] if others else [])]))


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def checkpoint_step(directory: Path) -> int | None:
    """The step in a checkpoint directory's name; None for any other name."""
    match = _CHECKPOINT.fullmatch(directory.name)
    return int(match[1]) if match else None


def checkpoint_directories(parent: Path) -> dict[int, Path]:
    """The checkpoint directories in a directory by their step, oldest first."""
    paths = {step: path for path in parent.glob("step-*") if (step := checkpoint_step(path)) is not None}
    return dict(sorted(paths.items()))


def journal_name(rank: int) -> str:
    return f"rank-{rank}.jsonl"


def stack_name(rank: int) -> str:
    """The file in which a process that hangs leaves the stacks of its threads."""
    return f"rank-{rank}.stack"


def journal_files(directory: Path) -> dict[int, Path]:
    """The event logs in a run's journal directory by rank; none where the directory is missing."""
    paths = directory.iterdir() if directory.is_dir() else ()
    return dict(sorted((int(match[1]), path) for path in paths if (match := _JOURNAL.fullmatch(path.name))))


def run_of_file(path: Path) -> Path | None:
    """The directory of the run that a file belongs to, if it is a file by which a run is known."""
    if path.name == RUN_FILE:
        return path.parent
    run = path.parent.parent
    return run if path.suffix == ".jsonl" and path.parent == RunPaths(run).journals else None
