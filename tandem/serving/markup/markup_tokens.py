"""HTML as tokens that keep their spelling: all of them in a row are the source again.

The tokens are those of the HTML standard. Python's own parser does not tell how an end tag was spelt, others rewrite
what they read, and some inputs keep Python's busy for minutes; here no character is looked at more than a few times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Literal

# Elements whose contents are no text to translate.
_UNTRANSLATED = frozenset(
    ("script", "style", "pre", "code", "kbd", "samp", "var", "textarea", "template", "svg", "math", "iframe", "xmp")
)
# Elements in which tags and comments are text.
_RAW = frozenset(("script", "style", "textarea", "iframe", "xmp"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
# Possessive (`*+`): what has been read is never read again in another way.
_VALUE = r"""\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|(?=>))"""
_ATTRIBUTE = rf"[^\s/>][^\s/>=]*+(?:{_VALUE})?+"
_TAG = re.compile(rf"<(/?+)([a-zA-Z][^\s/>]*+)((?:[\s/]*+{_ATTRIBUTE})*+)([\s/]*+)>")
_ANY_ATTRIBUTE = re.compile(_ATTRIBUTE)
# A character by its number. Python refuses numbers of thousands of digits; eight are more than Unicode has characters.
_NUMBER = re.compile(r"&#0*([0-9]{1,8})[0-9]*")


@dataclass(frozen=True)
class MarkupToken:
    """A tag, a stretch of text, or something else such as a comment."""

    kind: Literal["text", "open", "close", "void", "other"]
    raw: str
    name: str = ""
    stays: bool = False
    """An opening tag whose element must not be translated."""


def markup_tokens(markup: str) -> Iterator[MarkupToken]:
    """The tokens of a piece of HTML."""
    done = place = 0
    while (place := markup.find("<", place)) >= 0:
        token = _token_at(markup, place)
        if token is None:  # a character like any other
            place += 1
            continue
        if done < place:
            yield MarkupToken("text", markup[done:place])
        yield token
        done = place = place + len(token.raw)
        if token.kind == "open" and token.name in _RAW:
            end = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(markup, place)
            place = end.start() if end else len(markup)
            yield MarkupToken("other", markup[done:place])
            done = place
    if done < len(markup):
        yield MarkupToken("text", markup[done:])


def unescape_text(raw: str) -> str:
    """The characters that a stretch of HTML stands for."""
    return unescape(_NUMBER.sub(r"&#\1", raw))


def _token_at(markup: str, place: int) -> MarkupToken | None:
    """The tag, comment or declaration that begins at a place."""
    if markup.startswith("<!--", place):
        return _until(markup, place, "-->", place + 4)
    following = markup[place + 1 : place + 3]
    if following[:1] in ("!", "?") or re.match(r"/[^a-zA-Z]", following):
        return _until(markup, place, ">", place + 1)
    if not re.match(r"/?[a-zA-Z]", following):
        return None
    found = _TAG.match(markup, place)
    if found is None:  # it does not end: a browser shows nothing from here on
        return MarkupToken("other", markup[place:])
    return _tag(found)


def _until(markup: str, place: int, end: str, start: int) -> MarkupToken:
    found = markup.find(end, start)
    return MarkupToken("other", markup[place : found + len(end)] if found >= 0 else markup[place:])


def _tag(found: re.Match[str]) -> MarkupToken:
    raw, name = found[0], found[2].lower()
    if found[1]:
        return MarkupToken("close", raw, name)
    if name in _VOID or found[4].endswith("/"):
        return MarkupToken("void", raw, name)
    return MarkupToken("open", raw, name, name in _UNTRANSLATED or _is_forbidden(found[3]))


def _is_forbidden(attributes: str) -> bool:
    """Whether a tag says that its element must not be translated."""
    for attribute in _ANY_ATTRIBUTE.findall(attributes):
        name, _, value = attribute.lower().partition("=")
        words = unescape_text(value.strip().strip("\"'")).split()
        if (name.strip() == "translate" and words == ["no"]) or (name.strip() == "class" and "notranslate" in words):
            return True
    return False
