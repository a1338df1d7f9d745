"""Placeholders in text: what programs put values into, addresses, and marks of other programs. They stay literally.

A sentence is translated as it stands, because a model does best with whole sentences. Where its translation has lost a
placeholder, the parts around the placeholders are translated by themselves instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# Bounded repetitions only: no input makes the search long.
_PLACEHOLDER = re.compile(
    r"""
    \{\{[^{}\n]{1,100}\}\}                                  # {{ name }}
    | \$\{[^{}\n]{1,100}\}                                  # ${name}
    | \{[^{}\s]{0,60}\}                                     # {name}, {0:.2f}, {}
    | %\([A-Za-z_]\w{0,60}\)[-+#0]{0,3}\d{0,3}(?:\.\d{1,3})?[a-zA-Z]   # %(count)d
    | %(?:\d{1,2}\$)?[-+#0]{0,3}\d{0,3}(?:\.\d{1,3})?(?:hh|h|ll|l|z)?[diouxXeEfFgGcrsa@](?![A-Za-z])  # %s, %1$d, %.2f
    | \[X\d{1,6}X\]                                         # what Weblate puts for tags and variables
    | (?:https?|ftp)://[^\s<>"']{1,2000}(?<![.,;:!?)\]])    # addresses, without the full stop of the sentence
    | (?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}
    """,
    re.VERBOSE,
)
_SPOKEN = re.compile(r"\w")


@dataclass(frozen=True)
class Stretch:
    """Part of a sentence: text to translate, or what must stay as it is."""

    text: str
    kept: bool


def find_placeholders(text: str) -> list[tuple[int, int]]:
    """Where the placeholders of a text begin and end, in order."""
    return [found.span() for found in _PLACEHOLDER.finditer(text)]


def is_kept(text: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether nothing is left to translate beside what must stay: no letter, no digit."""
    return not any(_SPOKEN.search(part.text) for part in stretches(text, spans) if not part.kept)


def are_all_in(kept: Sequence[str], translation: str) -> bool:
    """Whether a translation has every one of these literally, and as often."""
    wanted = Counter(kept)
    # The longest first, each taken out: {a} is not found a second time inside {{a}}.
    for text in sorted(wanted, key=len, reverse=True):
        if translation.count(text) != wanted[text]:
            return False
        translation = translation.replace(text, "\0")
    return True


def stretches(text: str, spans: Sequence[tuple[int, int]]) -> list[Stretch]:
    """The text cut at what must stay. White space and marks without a letter between them stay, too."""
    parts, done = [], 0
    for start, end in spans:
        parts += [Stretch(text[done:start], kept=False), Stretch(text[start:end], kept=True)]
        done = end
    parts.append(Stretch(text[done:], kept=False))
    return [part for each in parts if each.text for part in ([each] if each.kept else _with_edges(each.text))]


def _with_edges(text: str) -> list[Stretch]:
    """A stretch to translate without the white space and marks at its edges, which stay."""
    if not _SPOKEN.search(text):
        return [Stretch(text, kept=True)]
    body = text.lstrip(" \t\r\n,;:.!?)]}")
    before = text[: len(text) - len(body)]
    core = body.rstrip()
    edges = (Stretch(before, kept=True), Stretch(core, kept=False), Stretch(body[len(core) :], kept=True))
    return [part for part in edges if part.text]
