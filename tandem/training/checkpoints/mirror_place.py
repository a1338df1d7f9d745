"""The second place that a run is copied to: a directory, or one on another host by way of rsync and ssh."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.errors import TandemError
from tandem.layout import SUMS_FILE
from tandem.ssh import SSH_OPTIONS
from tandem.storage import error_in_words, fsync_path, is_full, split_remote
from tandem.training.checkpoints.checkpoint import HIDDEN, REPLACED, put_in_place

RSYNC_OPTIONS = ("--recursive", "--times", "--no-links", "--protect-args", "--timeout=60")
# Prints the path of all that is in the directories that it is given, and its digests, with a zero byte after either.
LISTING_SCRIPT = rf"""
for directory do (
    [ -d "$directory" ] || exit 0
    cd "$directory" && names=$(ls -1A) || exit 1
    printf '%s\n' "$names" | while IFS= read -r name; do
        sums=$name/{SUMS_FILE}
        [ "$name" = {SUMS_FILE} ] && sums=$name
        printf '%s/%s\0' "$directory" "$name"
        [ -f "$sums" ] && cat "$sums"
        printf '\0'
    done
) || exit 1; done
"""
# The system's number of an error at the end of a line, as rsync writes it: No space left on device (28)
ERROR_NUMBER = re.compile(r"\((\d+)\)$", re.MULTILINE)
# Where small files wait on the mirror's host until all of them are there.
WAITING_FILES = ".files.writing"
# Written to a place to see whether it can be.
TRIAL_FILE = ".trial"


class MirrorError(TandemError):
    """A mirror that cannot be reached, read or written."""


class MirrorPlace(ABC):
    """Directories and files by their paths relative to the mirror; whole or not there."""

    def __init__(self, target: str) -> None:
        self.target = target

    @abstractmethod
    def listing(self, directories: Sequence[str]) -> dict[str, dict[str, bytes]]:
        """What directories hold, by name: the digests of a checkpoint, or of the run's small files; else no bytes."""

    @abstractmethod
    def put(self, source: Path, path: str) -> None:
        """Copy a directory of files to a temporary name and rename it; what had the name goes only then."""

    @abstractmethod
    def write(self, path: str, write: Callable[[Path], object]) -> None:
        """Have a directory written here that this host's own disk has no room for; `write` takes its place."""

    @abstractmethod
    def put_files(self, source: Path) -> None:
        """Copy the files of a directory to temporary names, and rename them when all are there, their digests last."""

    @abstractmethod
    def get(self, path: str, destination: Path) -> None:
        """Copy a file, or a directory of files, from the mirror."""

    @abstractmethod
    def remove(self, paths: Sequence[str]) -> None:
        """Remove directories."""

    @abstractmethod
    def try_out(self) -> None:
        """Make the place, write a file to it and leave nothing behind; an error if that cannot be done."""

    def names(self) -> set[str]:
        """What the mirror itself holds."""
        return set(self.listing(["."])["."])

    def error(self, why: str) -> MirrorError:
        return MirrorError(f"checkpoint.mirror: {self.target}: {why}")

    @contextmanager
    def _errors(self, here: Path | None = None) -> Iterator[None]:
        """Turn an OSError into one that names the mirror, and the file here that there is no room for."""
        try:
            yield
        except OSError as error:
            why = error_in_words(error)
            if here is not None and is_full(error):
                why = f"cannot be copied to {here}, where the disk is full"
            raise self.error(why) from error


class MirrorDirectory(MirrorPlace):
    """A mirror on a disk of this host, or on one that hosts share."""

    def __init__(self, target: str, root: str) -> None:
        super().__init__(target)
        self._root = Path(root)

    def error(self, why: str) -> MirrorError:
        # An error of the system names the file: the mirror has been named, and what lies in it is named from there.
        return super().error(why.removeprefix(f"{self._root}: ").removeprefix(f"{self._root}/"))

    def listing(self, directories: Sequence[str]) -> dict[str, dict[str, bytes]]:
        with self._errors():
            return {directory: _names_and_digests(self._root / directory) for directory in directories}

    def put(self, source: Path, path: str) -> None:
        with self._errors():
            self._copy(source, self._root / path)

    def write(self, path: str, write: Callable[[Path], object]) -> None:
        write(self._root / path)

    def put_files(self, source: Path) -> None:
        names = sorted((path.name for path in source.iterdir()), key=_digests_last)
        with self._errors():
            self._root.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(source / name, self._root / _temporary(name))
            for name in names:
                _give_name(self._root / _temporary(name), self._root / name)

    def get(self, path: str, destination: Path) -> None:
        with self._errors(destination):
            self._copy(self._root / path, destination)

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            shutil.rmtree(self._root / path, ignore_errors=True)

    def try_out(self) -> None:
        trial = self._root / TRIAL_FILE
        made = [path for path in (self._root, *self._root.parents) if not path.exists()]
        with self._errors():
            try:
                self._root.mkdir(parents=True, exist_ok=True)
                trial.write_bytes(b"0")
            finally:
                with suppress(OSError):
                    trial.unlink()
                for path in made:
                    with suppress(OSError):
                        path.rmdir()

    def _copy(self, source: Path, destination: Path) -> None:
        temporary = destination.with_name(_temporary(destination.name))
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            if source.is_dir():
                temporary.mkdir()
                for file in source.iterdir():
                    if file.is_file() and not file.is_symlink():
                        shutil.copyfile(file, temporary / file.name)
            else:
                shutil.copyfile(source, temporary)
            _give_name(temporary, destination)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


class MirrorHost(MirrorPlace):
    """A mirror on another host, by rsync over ssh; $RSYNC_RSH may name another way to reach it, as rsync has it.

    Every call is a login or two; a save in which nothing has changed makes one.
    """

    def __init__(self, target: str, host: str, root: str) -> None:
        super().__init__(target)
        self._host, self._root = host, root
        self._ssh = [*shlex.split(os.environ.get("RSYNC_RSH") or "ssh"), *SSH_OPTIONS]

    def listing(self, directories: Sequence[str]) -> dict[str, dict[str, bytes]]:
        # By their paths there, because a name may hold anything but a zero byte.
        listed = self._run_there(LISTING_SCRIPT, *map(self._path, directories)).split(b"\0")
        found: dict[str, dict[str, bytes]] = {self._path(directory): {} for directory in directories}
        for path, sums in zip(listed[::2], listed[1::2], strict=False):
            directory, _, name = os.fsdecode(path).rpartition("/")
            if name:
                found[directory][name] = sums
        return dict(zip(directories, found.values(), strict=True))

    def put(self, source: Path, path: str) -> None:
        parent, _, name = path.rpartition("/")
        temporary = f"{parent}/{_temporary(name)}"
        there, whole = self._quoted(temporary), self._quoted(path)
        replaced = self._quoted(f"{parent}/{HIDDEN}{name}{REPLACED}")
        self._send(source, temporary)
        self._run_there(
            f"if [ -e {whole} ]; then rm -rf {replaced} && mv {whole} {replaced}; fi && "
            f"mv {there} {whole} && rm -rf {replaced}"
        )

    def write(self, path: str, write: Callable[[Path], object]) -> None:
        # Not on the run's disk, unless the temporary files are there, too.
        with self._errors(), TemporaryDirectory() as temporary:
            directory = Path(temporary) / Path(path).name
            write(directory)
            self.put(directory, path)

    def put_files(self, source: Path) -> None:
        self._send(source, WAITING_FILES)
        names = sorted((path.name for path in source.iterdir()), key=_digests_last)
        moved = " && ".join(f"mv -f {self._quoted(f'{WAITING_FILES}/{name}')} {self._quoted(name)}" for name in names)
        self._run_there(f"{moved} && rm -rf {self._quoted(WAITING_FILES)}")

    def get(self, path: str, destination: Path) -> None:
        temporary = destination.with_name(_temporary(destination.name))
        with self._errors(destination):
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            try:
                temporary.mkdir()
                self._rsync(f"{self._host}:{self._root}/{path}", f"{temporary.absolute()}/")
                # rsync has put it under its own name.
                _give_name(temporary / Path(path).name, destination)
            finally:
                # What has come before a disk was full must not fill it.
                shutil.rmtree(temporary, ignore_errors=True)

    def remove(self, paths: Sequence[str]) -> None:
        if paths:
            self._run_there(f"rm -rf {' '.join(map(self._quoted, paths))}")

    def try_out(self) -> None:
        root, trial = self._quoted("."), self._quoted(TRIAL_FILE)
        # What is left of a place that was not there is an empty one at most.
        self._run_there(f"mkdir -p {root} && echo > {trial}; code=$?; rm -f {trial}; exit $code")

    def _send(self, source: Path, path: str) -> None:
        """Copy a directory to a place that has nothing of it yet."""
        there = self._quoted(path)
        self._run_there(f"rm -rf {there} && mkdir -p {there}")
        self._rsync(f"{source.absolute()}/", f"{self._host}:{self._root}/{path}/")

    def _path(self, path: str) -> str:
        # A path that begins with a dash would be taken for an option.
        return f"./{self._root}/{path}" if self._root.startswith("-") else f"{self._root}/{path}"

    def _quoted(self, path: str) -> str:
        return shlex.quote(self._path(path))

    def _run_there(self, script: str, *arguments: str) -> bytes:
        return self._run([*self._ssh, self._host, shlex.join(["sh", "-c", script, "sh", *arguments])])

    def _rsync(self, source: str, destination: str) -> None:
        self._run(["rsync", *RSYNC_OPTIONS, "--rsh", shlex.join(self._ssh), "--", source, destination])

    def _run(self, command: list[str]) -> bytes:
        try:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        except FileNotFoundError as error:
            raise self.error(f"{command[0]} is not installed here") from error
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip()
            lines, number = said.splitlines(), ERROR_NUMBER.search(said)
            why = lines[0] if lines else f"{command[0]} ended with code {ended.returncode}"
            # Whoever asks for the cause gets the system's error, as from a directory.
            raise self.error(why) from (OSError(int(number[1]), why) if number else None)
        return ended.stdout


def open_place(target: str) -> MirrorPlace:
    """The place that the setting `checkpoint.mirror` names."""
    host, path = split_remote(target)
    return MirrorDirectory(target, path) if host is None else MirrorHost(target, host, path)


def _names_and_digests(directory: Path) -> dict[str, bytes]:
    """What a directory holds; nothing if it is not there."""
    found = {}
    for path in directory.iterdir() if directory.is_dir() else ():
        sums = path if path.name == SUMS_FILE else path / SUMS_FILE
        found[path.name] = sums.read_bytes() if sums.is_file() else b""
    return found


def _give_name(temporary: Path, path: Path) -> None:
    """Rename a whole copy, once all of it is on the disk."""
    if temporary.is_dir():
        put_in_place(temporary, path)
    else:
        fsync_path(temporary)
        temporary.replace(path)
        fsync_path(path.parent)


def _temporary(name: str) -> str:
    return f"{HIDDEN}{name}.writing"


def _digests_last(name: str) -> tuple[bool, str]:
    return name == SUMS_FILE, name
