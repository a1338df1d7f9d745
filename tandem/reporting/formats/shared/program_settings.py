"""Settings of other programs as they printed them: numbers, languages, bytes of a gradient value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tandem.reporting.formats.shared.log_lines import count, number
from tandem.reporting.run_record import TrainingText

GRADIENT_BYTES = {"mixed": 4, "float32": 4, "float16": 2}
"""Bytes of a gradient value on the network; mixed training sums the gradients of its float32 master copy."""

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")


class Settings(dict[str, str]):
    """A program's settings as it printed them, by name."""

    def number(self, name: str) -> float | None:
        return number(self.get(name, ""))

    def count(self, name: str) -> int | None:
        return count(self.get(name, ""))

    def only(self, *names: str) -> dict[str, str]:
        """The named settings, as far as there are any."""
        return {name: self[name] for name in names if name in self}


def texts_in(languages: Sequence[str | None], lines: int | None = None) -> tuple[TrainingText, ...]:
    """The training text by its two languages; `lines` is how many pairs were trained on, after all cleaning."""
    known = [language for language in languages if language not in (None, "None")]
    if len(known) < len(languages):
        return ()
    return tuple(TrainingText(language=str(language), cleaned_lines=lines) for language in known)


def texts_of_files(files: Sequence[str], lines: int | None = None) -> tuple[TrainingText, ...]:
    """The training text by its two files: train.en.tok and train.de.tok are en and de, as these parts differ."""
    names = [PurePosixPath(file.replace("\\", "/")).name for file in files]
    for languages in zip(*(re.split(r"[.\-]", name) for name in names), strict=False):
        if len(set(languages)) == len(files) and all(map(_LANGUAGE.fullmatch, languages)):
            return texts_in(languages, lines)
    return texts_in(names, lines)
