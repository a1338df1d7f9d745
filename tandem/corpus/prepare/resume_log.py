"""What a prepare has done so far, kept beside the corpus in the making, so that a killed one continues."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, TypeVar

from tandem.config import Section
from tandem.corpus.prepare.staging import BUILT, LOCK
from tandem.storage import write_whole

Note = TypeVar("Note", bound=Section)


class ResumeLog:
    """A directory of finished pieces of work: their files, and a small note for each, written last."""

    def __init__(self, staged: Path, plan: dict[str, Any]) -> None:
        """Go on where an earlier attempt with the same plan stopped, or clear away what another has left."""
        self.built = staged / BUILT
        """The corpus in the making."""
        self._directory = staged / "work"
        content = json.dumps(plan, indent=2, sort_keys=True).encode()
        path = staged / "plan.json"
        # Without its directory the corpus was finished and put in its place.
        if not self.built.is_dir() or not path.is_file() or path.read_bytes() != content:
            _clear(staged)
            self.built.mkdir()
            self._directory.mkdir()
            write_whole(path, content)

    def path(self, name: str) -> Path:
        """Where a piece of work puts its files."""
        path = self._directory / name
        path.parent.mkdir(exist_ok=True)
        return path

    def read(self, name: str, kind: type[Note]) -> Note | None:
        """The note about a piece of work, if it was finished."""
        path = self.path(f"{name}.json")
        return kind.model_validate_json(path.read_bytes()) if path.is_file() else None

    def finish(self, name: str, note: Section) -> None:
        """Note that a piece of work is finished; its files are whole by now."""
        write_whole(self.path(f"{name}.json"), note.model_dump_json().encode())


def _clear(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.name == LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
