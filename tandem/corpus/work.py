"""What a prepare has done so far, kept beside the corpus in the making, so that a killed one continues."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, TypeVar

from tandem.config import Section
from tandem.corpus.staging import BUILT, LOCK
from tandem.files import write_whole

Found = TypeVar("Found", bound=Section)


class Work:
    """A directory of finished pieces of work, each a small file of what was found, written last."""

    def __init__(self, staged: Path) -> None:
        self.built = staged / BUILT
        """The corpus in the making."""
        self._directory = staged / "work"

    @classmethod
    def begin(cls, staged: Path, plan: dict[str, Any]) -> Work:
        """Go on where an earlier attempt with the same plan stopped, or clear away what another has left."""
        work = cls(staged)
        written = json.dumps(plan, indent=2, sort_keys=True).encode()
        path = staged / "plan.json"
        # Without its directory the corpus was finished and put in its place.
        if not work.built.is_dir() or not path.is_file() or path.read_bytes() != written:
            _empty(staged)
            work.built.mkdir()
            work._directory.mkdir()
            write_whole(path, written)
        return work

    def path(self, name: str) -> Path:
        """Where a piece of work puts its files."""
        path = self._directory / name
        path.parent.mkdir(exist_ok=True)
        return path

    def found(self, name: str, kind: type[Found]) -> Found | None:
        """What a piece of work found, if it was finished."""
        path = self._note(name)
        return kind.model_validate_json(path.read_bytes()) if path.is_file() else None

    def finish(self, name: str, found: Section) -> None:
        """Note that a piece of work is finished; its files are whole by now."""
        self.path(name)
        write_whole(self._note(name), found.model_dump_json().encode())

    def _note(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.name == LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
