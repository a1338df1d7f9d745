"""The languages of a training text, guessed from the names of its two files."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tandem.report.record import Text

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")


def texts_of(source: str, target: str, lines: int | None = None) -> tuple[Text, ...]:
    """Source and target: train.en.tok and train.de.tok are en and de, as these parts of the names differ.

    `lines` is how many pairs the program trained on, which is after all cleaning.
    """
    sides = [re.split(r"[.\-]", PurePosixPath(name.replace("\\", "/")).name) for name in (source, target)]
    for one, other in zip(*sides, strict=False):
        if one != other and _LANGUAGE.fullmatch(one) and _LANGUAGE.fullmatch(other):
            return Text(language=one, cleaned_lines=lines), Text(language=other, cleaned_lines=lines)
    names = [PurePosixPath(name).name for name in (source, target)]
    return tuple(Text(language=name, cleaned_lines=lines) for name in names)
