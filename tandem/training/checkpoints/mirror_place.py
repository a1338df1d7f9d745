"""The second place that a run is copied to: a directory, or one on another host by way of rsync and ssh."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from tandem.errors import TandemError
from tandem.layout import SUMS_FILE
from tandem.storage import error_in_words, fsync_path, fsync_tree, split_remote

# Nobody is there to type a password, and a host that is gone must not be waited for.
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
RSYNC_OPTIONS = ("--recursive", "--times", "--no-links", "--protect-args", "--timeout=60")


class MirrorError(TandemError):
    """A mirror that cannot be reached, read or written."""


class MirrorPlace(ABC):
    """Directories and files by their paths relative to the mirror; whole or not there."""

    def __init__(self, target: str) -> None:
        self.target = target

    @abstractmethod
    def names(self, directory: str) -> set[str]:
        """What a directory holds; nothing if it is not there."""

    @abstractmethod
    def sums(self, directory: str) -> bytes:
        """The digests of a mirrored checkpoint; empty if it is not there."""

    @abstractmethod
    def put(self, source: Path, path: str) -> None:
        """Copy a file, or a directory of files, to a temporary name and rename it."""

    @abstractmethod
    def get(self, path: str, destination: Path) -> None:
        """Copy a file, or a directory of files, from the mirror."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a directory."""

    def error(self, why: str) -> MirrorError:
        return MirrorError(f"checkpoint.mirror: {self.target}: {why}")


class MirrorDirectory(MirrorPlace):
    """A mirror on a disk of this host, or on one that hosts share."""

    def names(self, directory: str) -> set[str]:
        place = Path(self.target, directory)
        try:
            return {path.name for path in place.iterdir()} if place.is_dir() else set()
        except OSError as error:
            raise self.error(error_in_words(error)) from error

    def sums(self, directory: str) -> bytes:
        path = Path(self.target, directory, SUMS_FILE)
        try:
            return path.read_bytes() if path.is_file() else b""
        except OSError as error:
            raise self.error(error_in_words(error)) from error

    def put(self, source: Path, path: str) -> None:
        self._copy(source, Path(self.target, path))

    def get(self, path: str, destination: Path) -> None:
        self._copy(Path(self.target, path), destination)

    def remove(self, path: str) -> None:
        shutil.rmtree(Path(self.target, path), ignore_errors=True)

    def _copy(self, source: Path, destination: Path) -> None:
        temporary = destination.with_name(f".{destination.name}.writing")
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                for file in source.iterdir():
                    if file.is_file() and not file.is_symlink():
                        shutil.copyfile(file, temporary / file.name)
                fsync_tree(temporary)
                shutil.rmtree(destination, ignore_errors=True)
            else:
                shutil.copyfile(source, temporary)
                fsync_path(temporary)
            temporary.rename(destination)
            fsync_path(destination.parent)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise self.error(error_in_words(error)) from error


class MirrorHost(MirrorPlace):
    """A mirror on another host, by rsync over ssh; $RSYNC_RSH may name another way to reach it, as rsync has it."""

    def __init__(self, target: str, host: str, root: str) -> None:
        super().__init__(target)
        self._host, self._root = host, root
        self._ssh = [*shlex.split(os.environ.get("RSYNC_RSH") or "ssh"), *SSH_OPTIONS]

    def names(self, directory: str) -> set[str]:
        place = self._remote(directory)
        return set(self._run_there(f"if [ -d {place} ]; then ls -1A {place}; fi").decode().split("\n")) - {""}

    def sums(self, directory: str) -> bytes:
        file = self._remote(f"{directory}/{SUMS_FILE}")
        return self._run_there(f"if [ -f {file} ]; then cat {file}; fi")

    def put(self, source: Path, path: str) -> None:
        parent, _, name = path.rpartition("/")
        temporary = f"{parent}/.{name}.writing" if parent else f".{name}.writing"
        there, whole = self._remote(temporary), self._remote(path)
        self._run_there(f"mkdir -p {self._remote(parent or '.')} && rm -rf {there}")
        slash = "/" if source.is_dir() else ""
        self._rsync(f"{source.absolute()}{slash}", f"{self._host}:{self._root}/{temporary}{slash}")
        self._run_there(f"rm -rf {whole} && mv {there} {whole}" if slash else f"mv -f {there} {whole}")

    def get(self, path: str, destination: Path) -> None:
        temporary = destination.with_name(f".{destination.name}.writing")
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        self._rsync(f"{self._host}:{self._root}/{path}", f"{temporary.absolute()}/")
        # rsync has put it under its own name.
        fsync_tree(temporary)
        shutil.rmtree(destination, ignore_errors=True)
        (temporary / Path(path).name).rename(destination)
        temporary.rmdir()

    def remove(self, path: str) -> None:
        self._run_there(f"rm -rf {self._remote(path)}")

    def _remote(self, path: str) -> str:
        # A path that begins with a dash would be taken for an option.
        return shlex.quote(f"./{self._root}/{path}" if self._root.startswith("-") else f"{self._root}/{path}")

    def _run_there(self, script: str) -> bytes:
        return self._run([*self._ssh, self._host, f"sh -c {shlex.quote(script)}"])

    def _rsync(self, source: str, destination: str) -> None:
        self._run(["rsync", *RSYNC_OPTIONS, "--rsh", shlex.join(self._ssh), "--", source, destination])

    def _run(self, command: list[str]) -> bytes:
        try:
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        except FileNotFoundError as error:
            raise self.error(f"{command[0]} is not installed here") from error
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            raise self.error(lines[0] if lines else f"{command[0]} ended with code {ended.returncode}")
        return ended.stdout


def open_place(target: str) -> MirrorPlace:
    """The place that the setting `checkpoint.mirror` names."""
    host, path = split_remote(target)
    return MirrorDirectory(target) if host is None else MirrorHost(target, host, path)
