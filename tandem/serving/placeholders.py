"""Placeholders in text: what programs put values into, addresses, and marks of other programs. They stay literally.

A sentence is translated as it stands, because a model does best with whole sentences. Where its translation has lost a
placeholder, the parts around the placeholders are translated by themselves instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Where something begins and ends in a text.
Span = tuple[int, int]
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
class SentencePart:
    """Part of a sentence: text to translate, or what must stay as it is."""

    text: str
    kept: bool
    is_placeholder: bool = False
    """What was asked to stay, not white space or a mark beside it."""


def find_placeholders(text: str) -> list[Span]:
    """Where the placeholders of a text begin and end, in order."""
    return [found.span() for found in _PLACEHOLDER.finditer(text)]


def is_kept(text: str, spans: Sequence[Span]) -> bool:
    """Whether nothing is left to translate beside what must stay: no letter, no digit."""
    return not any(_SPOKEN.search(part.text) for part in stretches(text, spans) if not part.kept)


def locate(kept: Sequence[str], translation: str) -> list[Span] | None:
    """Where each of these stands literally in a translation; None if one is lost, or there more often than it was."""
    found: dict[int, Span] = {}
    taken: list[Span] = []
    # The longest first: {a} is not found a second time inside {{a}}.
    for text in sorted(set(kept), key=len, reverse=True):
        numbers = [number for number, each in enumerate(kept) if each == text]
        before, after = (r"(?<!\w)" if text[0].isalnum() else ""), (r"(?!\w)" if text[-1].isalnum() else "")
        places = [match.span() for match in re.finditer(before + re.escape(text) + after, translation)]
        places = [place for place in places if not any(place[0] < end and start < place[1] for start, end in taken)]
        if len(places) != len(numbers):
            return None
        taken += places
        found |= dict(zip(numbers, places, strict=True))
    return [found[number] for number in range(len(kept))]


def stretches(text: str, spans: Sequence[Span]) -> list[SentencePart]:
    """The text cut at what must stay. White space and marks without a letter between them stay, too."""
    parts, done = [], 0
    for start, end in spans:
        parts += [
            SentencePart(text[done:start], kept=False),
            SentencePart(text[start:end], kept=True, is_placeholder=True),
        ]
        done = end
    parts.append(SentencePart(text[done:], kept=False))
    return [part for each in parts if each.text for part in ([each] if each.kept else _with_edges(each.text))]


def _with_edges(text: str) -> list[SentencePart]:
    """A stretch to translate without the white space and marks at its edges, which stay."""
    if not _SPOKEN.search(text):
        return [SentencePart(text, kept=True)]
    body = text.lstrip(" \t\r\n,;:.!?)]}")
    before = text[: len(text) - len(body)]
    core = body.rstrip()
    edges = (
        SentencePart(before, kept=True),
        SentencePart(core, kept=False),
        SentencePart(body[len(core) :], kept=True),
    )
    return [part for part in edges if part.text]
