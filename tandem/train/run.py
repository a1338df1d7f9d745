"""A run's directory: what lies where, and under which conditions a run may be continued.

config.yaml      the resolved settings
run.json         the corpus the run learns from
tokenizer.model  its tokenizer, so that the run translates without the corpus
checkpoints/     the newest states, to resume from
best/            the best weights by dev BLEU
averaged/        what `tandem average` made
choices.json     what was settled at the start where the settings say `auto`
exchange.json    how the hosts' work is put together, where that was left to be found out
hosts/           what each host remembers for itself
journal/         each rank's records
tensorboard/     event files
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.config import Config, differences, dump, load_saved
from tandem.corpus.prepared import TOKENIZER_FILE, PreparedCorpus
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.files import write_whole

CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
EXCHANGE_CHOICE_FILE = "exchange.json"
CHOICES_FILE = "choices.json"
LOCK_FILE = ".lock"
# The files of a checkpoint.
MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
# Settings that a continued run may change freely: they do not touch the steps already taken or still to come
# (except that with local steps the last step of a run ends a round).
# (What the corpus really holds is compared by digest.)
FREE = (
    *("corpus.", "train.max_steps", "train.log_every", "batch.split_when_full"),
    *("cluster.", "search.", "evaluation.", "checkpoint."),
)
# Settings that no saved state survives a change of.
SHAPE = (
    "model.encoder_layers",
    "model.decoder_layers",
    "model.d_model",
    "model.heads",
    "model.d_ff",
)
# Settings that may be overridden when a trained run is used: they do not change what the weights mean.
FREE_IN_USE = ("search.", "evaluation.", "batch.")


@dataclass(frozen=True)
class RunPaths:
    """What lies where in a run's directory, whether or not this host has the whole run."""

    directory: Path

    @property
    def journal_directory(self) -> Path:
        return self.directory / "journal"

    @property
    def checkpoints_directory(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def tensorboard_directory(self) -> Path:
        return self.directory / "tensorboard"

    @property
    def exchange_file(self) -> Path:
        return self.directory / EXCHANGE_CHOICE_FILE

    @property
    def choices_file(self) -> Path:
        return self.directory / CHOICES_FILE

    @property
    def averaged_directory(self) -> Path:
        return self.directory / "averaged"


@dataclass(frozen=True)
class Run(RunPaths):
    """A run that exists on disk."""

    config: Config
    corpus_directory: Path
    corpus_digest: str

    @classmethod
    def open(cls, directory: Path, overrides: Sequence[str] = ()) -> Run:
        """Open a run that was started before, with some of its settings overridden for this use."""
        if not (directory / RUN_FILE).is_file():
            raise TandemError(f"{directory}: not a run (it has no {RUN_FILE}); give the --run of `tandem train`")
        for override in overrides:
            if not override.startswith(FREE_IN_USE):
                raise TandemError(
                    f"{override}: a trained run takes only {', '.join(FREE_IN_USE)} settings; leave it out"
                )
        try:
            facts: dict[str, Any] = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
            corpus_directory, digest = Path(facts["corpus"]), str(facts["corpus_digest"])
        except (ValueError, KeyError, TypeError) as error:
            raise TandemError(f"{directory / RUN_FILE}: damaged ({error}); start a new run") from error
        return cls(directory, load_saved(directory / CONFIG_FILE, overrides), corpus_directory, digest)

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.directory / TOKENIZER_FILE)

    def corpus(self, moved_to: Path | None = None) -> PreparedCorpus:
        """The corpus the run learnt from, where it was or where it has been moved to."""
        corpus = PreparedCorpus.open(moved_to or self.corpus_directory)
        if corpus.digest != self.corpus_digest:
            raise TandemError(
                f"{corpus.directory}: not the corpus that {self.directory} was trained on; name that one with --corpus"
            )
        return corpus


def start(directory: Path, config: Config, corpus: PreparedCorpus, change: bool) -> list[str]:
    """Create the run's directory, or check that it may be continued and say which settings have changed."""
    if (directory / RUN_FILE).is_file():
        return _check_continuation(Run.open(directory), config, corpus, change)
    corpus.verify()
    write_whole(directory / TOKENIZER_FILE, (corpus.directory / TOKENIZER_FILE).read_bytes())
    adopt(directory, config)
    facts = {"corpus": str(corpus.directory.resolve()), "corpus_digest": corpus.digest}
    # Written last: a directory with this file has all the others.
    write_whole(directory / RUN_FILE, (json.dumps(facts, indent=2) + "\n").encode())
    return []


def adopt(directory: Path, config: Config) -> None:
    """Make these the settings of the run."""
    write_whole(directory / CONFIG_FILE, dump(config).encode())


def _check_continuation(run: Run, config: Config, corpus: PreparedCorpus, change: bool) -> list[str]:
    if run.corpus_digest != corpus.digest:
        raise TandemError(
            f"{run.directory}: was trained on another corpus than {corpus.directory}; choose another --run"
        )
    changed = [
        difference
        for difference in differences(run.config, config)
        if not difference.key.startswith(FREE)
        or (difference.key == "train.max_steps" and config.schedule.kind == "cosine")
    ]
    listed = "; ".join(str(difference) for difference in changed)
    if any(difference.key.startswith(SHAPE) for difference in changed):
        raise TandemError(f"{run.directory}: was started with another model ({listed}); choose another --run")
    if changed and not change:
        raise TandemError(
            f"{run.directory}: was started with other settings ({listed}); give the same ones to continue it, "
            "or add --change to go on with the new ones"
        )
    return [str(difference) for difference in changed]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the run for this process; a second training on the same run is refused, a killed one leaves no lock."""
    _refuse_foreign(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / LOCK_FILE).open("a")
    except OSError as error:
        raise TandemError(
            f"{directory}: cannot be a run's directory ({error.strerror}); choose another --run"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TandemError(f"{directory}: another process is training here; wait for it or stop it") from error
        yield


def _refuse_foreign(directory: Path) -> None:
    """Refuse a directory that holds anything but a run, or what a start killed half-way left of one."""
    ours = {LOCK_FILE, TOKENIZER_FILE, CONFIG_FILE}
    if not directory.is_dir() or (directory / RUN_FILE).is_file():
        return
    if any(path.name not in ours and not path.name.endswith(".writing") for path in directory.iterdir()):
        raise TandemError(f"{directory}: exists and is not a run; choose another --run")
