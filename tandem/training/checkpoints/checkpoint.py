"""Checkpoints on disk: a directory for each step, either whole or not there at all.

step-00004000/model.safetensors       the weights, or their moving average
step-00004000/optimizer.safetensors   Adam's means (not in the best ones, which are for use, not for resuming)
step-00004000/unaveraged.safetensors  the weights themselves, where those above are an average (not in the best ones)
step-00004000/state.json              step, progress, versions, and the sizes and digests of the files above
step-00004000/SHA256SUMS              digests of all files above, which `sha256sum -c` checks, too
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import tandem
from tandem.errors import TandemError
from tandem.layout import (
    MODEL_FILE,
    OPTIMIZER_FILE,
    STATE_FILE,
    SUMS_FILE,
    UNAVERAGED_FILE,
    checkpoint_directories,
    checkpoint_step,
)
from tandem.storage import error_in_words, fsync_path, fsync_tree, sha256_of
from tandem.training.checkpoints.merits import Merits
from tandem.training.train_state import TrainState
from tandem.untrusted_folder import foreign_entry, foreign_name

FORMAT = 2
# Format 1 had no file of digests: its state.json is taken as it is.
FORMAT_WITHOUT_SUMS = 1
# Files that only a training that goes on needs.
RESUME_FILES = (OPTIMIZER_FILE, UNAVERAGED_FILE)
# Directories with this prefix are being written or removed; no reader looks at them.
HIDDEN = "."
# The end of a hidden name under which a whole checkpoint waits until another has its name.
REPLACED = ".replaced"
# Names that checkpoints get which a run does not continue from although they are the newest.
DAMAGED, INCOMPLETE, DIVERGED = "damaged-", "incomplete-", "diverged-"


class DamagedCheckpointError(TandemError):
    """A checkpoint whose files are missing or are not what was written."""


class UnwritableCheckpointError(TandemError):
    """A checkpoint that the disk did not take."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk whose files have been checked against their digests."""

    directory: Path
    state: Mapping[str, Any]
    resume_damage: str = ""
    """What is wrong with a file that only resuming needs, where the weights were asked for; empty if nothing is."""

    @property
    def step(self) -> int:
        return int(self.state["numbers"]["progress"]["step"])

    @property
    def bleu(self) -> float | None:
        """Its dev BLEU; none for a checkpoint that is not one of the best."""
        return self.merits.dev_bleu

    @property
    def merits(self) -> Merits:
        """What it was kept for, empty for a checkpoint that is not one of the best."""
        return Merits.read(self.state)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.directory.iterdir())

    def model(self) -> dict[str, Tensor]:
        return self._load(MODEL_FILE)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of all files, by name."""
        return {name: self._load(name) for name in self.state["files"]}

    def _load(self, name: str) -> dict[str, Tensor]:
        try:
            return load_file(self.directory / name)
        except (OSError, SafetensorError) as error:
            raise DamagedCheckpointError(
                f"{self.directory / name}: cannot be read ({error_in_words(error)})"
            ) from error

    def restore(self, state: TrainState) -> None:
        """Turn a fresh state into the saved one."""
        tensors = self.tensors()
        try:
            state.restore(tensors, self.state["numbers"])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            # Its digests are right: another program, or a person, has written it.
            raise DamagedCheckpointError(f"{self.directory}: does not fit this run's model ({error})") from error


def save(directory: Path, state: TrainState) -> Checkpoint:
    """Save everything needed to resume."""
    return write(directory, state.tensors(), {"numbers": state.numbers()})


def write(directory: Path, files: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> Checkpoint:
    """Write a checkpoint that at every instant is either absent or whole, also across a power cut."""
    temporary = directory.with_name(f"{HIDDEN}{directory.name}.writing")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, tensors in files.items():
            save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, temporary / name)
            # safetensors writes for the owner alone; whoever may read the run may read its weights.
            (temporary / name).chmod(0o644)
        digests = {name: sha256_of(temporary / name) for name in files}
        written = {name: {"bytes": (temporary / name).stat().st_size, "sha256": digests[name]} for name in files}
        versions = {"tandem": tandem.__version__, "torch": torch.__version__}
        state = {"format": FORMAT, "versions": versions, **facts, "files": written}
        (temporary / STATE_FILE).write_text(json.dumps(state, indent=2) + "\n")
        (temporary / SUMS_FILE).write_bytes(digest_lines(digests | {STATE_FILE: sha256_of(temporary / STATE_FILE)}))
        put_in_place(temporary, directory)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UnwritableCheckpointError(f"{directory}: cannot save the checkpoint ({error_in_words(error)})") from error
    return Checkpoint(directory, state)


def put_in_place(temporary: Path, directory: Path) -> None:
    """Give a whole checkpoint its name, once all of it is on the disk; what had the name goes only then."""
    fsync_tree(temporary)
    replaced = directory.with_name(f"{HIDDEN}{directory.name}{REPLACED}")
    while True:
        if directory.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            directory.rename(replaced)
        try:
            temporary.rename(directory)
            break
        except OSError as error:
            # Another process may put an emergency checkpoint there at the same time.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    fsync_path(directory.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def digest_lines(digests: Mapping[str, str]) -> bytes:
    """Digests by file name, in the form that `sha256sum -c` reads."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode()


def read(directory: Path) -> Checkpoint:
    """Open a checkpoint and check every file against its digest."""
    checkpoint = read_weights(directory)
    if checkpoint.resume_damage:
        raise DamagedCheckpointError(checkpoint.resume_damage)
    return checkpoint


def read_weights(directory: Path) -> Checkpoint:
    """The same for whoever needs the weights alone: what only resuming needs may be damaged, which is noted."""
    try:
        if foreign := foreign_entry(directory):
            raise DamagedCheckpointError(f"{directory}: not read: {foreign}")
        state_text = (directory / STATE_FILE).read_bytes()
        sums = (directory / SUMS_FILE).read_bytes() if (directory / SUMS_FILE).exists() else None
        # Before a word of it is believed: a flipped bit may have made another step, or another format, of it.
        if sums is not None and f"{hashlib.sha256(state_text).hexdigest()}  {STATE_FILE}\n".encode() not in sums:
            raise DamagedCheckpointError(f"{directory / STATE_FILE}: damaged, its contents are not what was saved")
        state = json.loads(state_text)
        _check_numbers(state)
        if state["format"] not in (FORMAT, FORMAT_WITHOUT_SUMS):
            raise TandemError(
                f"{directory}: format {state['format']} is not the one this version reads ({FORMAT}); "
                f"use tandem {state['versions']['tandem']}"
            )
        checkpoint = Checkpoint(directory, state)
        if checkpoint_step(directory) not in (None, checkpoint.step):
            raise DamagedCheckpointError(f"{directory / STATE_FILE}: damaged, it speaks of step {checkpoint.step}")
        resume_damage = _check_files(directory, state, sums)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{directory}: not a whole checkpoint ({error_in_words(error)})") from error
    return replace(checkpoint, resume_damage=resume_damage)


def _check_numbers(state: Mapping[str, Any]) -> None:
    """Refuse facts that this class could not speak of."""
    step, bleu = state["numbers"]["progress"]["step"], state.get("bleu")
    if type(step) is not int or not isinstance(bleu, float | int | None):
        raise ValueError(f"step {step!r}, BLEU {bleu!r}")
    Merits.read(state)


def _check_files(directory: Path, state: Mapping[str, Any], sums: bytes | None) -> str:
    """Compare every file with the digest that was taken of it; what is wrong with one that only resuming needs."""
    if foreign := foreign_name(state["files"]):
        raise DamagedCheckpointError(f"{directory}: not read: {foreign}")
    digests = {name: str(facts["sha256"]) for name, facts in state["files"].items()}
    faults = {name: fault for name, digest in digests.items() if (fault := _file_fault(directory / name, digest))}
    resume_damage = next((damage for name in RESUME_FILES if (damage := faults.pop(name, ""))), "")
    if faults:
        raise DamagedCheckpointError(next(iter(faults.values())))
    # Made anew and compared as a whole, so that no byte of it can be another either.
    expected = digest_lines(digests | {STATE_FILE: sha256_of(directory / STATE_FILE)})
    if state["format"] != FORMAT_WITHOUT_SUMS and sums != expected:
        raise DamagedCheckpointError(f"{directory / SUMS_FILE}: damaged or missing")
    return resume_damage


def _file_fault(path: Path, digest: str) -> str:
    """What is wrong with a file that should have a digest; empty if nothing is."""
    try:
        whole = sha256_of(path) == digest
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return "" if whole else f"{path}: damaged, its contents are not what was saved"


def remove(directory: Path) -> None:
    """Remove a checkpoint, so that a kill half-way leaves nothing under its name."""
    if not directory.exists():
        return
    doomed = directory.with_name(f"{HIDDEN}{directory.name}.removing")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    shutil.rmtree(doomed)


def put_aside(directory: Path, prefix: str) -> None:
    """Give a checkpoint a name that no reader takes for one.

    The newest of a kind is enough to look into what happened; incomplete ones can still be of use, and all stay.
    """
    if not directory.exists():
        return
    aside = directory.with_name(f"{prefix}{directory.name}")
    remove(aside)
    directory.rename(aside)
    for older in directory.parent.glob(f"{prefix}step-*") if prefix != INCOMPLETE else ():
        if older != aside:
            remove(older)


def remove_oldest(parent: Path, keep: int) -> None:
    """Remove all checkpoints in a directory but the newest so many."""
    for directory in list(checkpoint_directories(parent).values())[:-keep]:
        remove(directory)


def remove_leftovers(parent: Path) -> None:
    """Remove what a killed process was writing or removing, and restore what it had not replaced yet."""
    # A disk that has become read-only still holds checkpoints to read.
    for replaced in parent.glob(f"{HIDDEN}step-*{REPLACED}"):
        directory = parent / replaced.name.removeprefix(HIDDEN).removesuffix(REPLACED)
        with suppress(OSError):
            if directory.exists():
                shutil.rmtree(replaced)
            else:
                replaced.rename(directory)
    for leftover in (*parent.glob(f"{HIDDEN}step-*.writing"), *parent.glob(f"{HIDDEN}*step-*.removing")):
        shutil.rmtree(leftover, ignore_errors=True)
