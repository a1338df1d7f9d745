"""Hypothesis strategies that damage something whole: bytes, JSON, lines of a log, settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

# What has broken readers before: extremes, other spellings of numbers, depth, other encodings, other lines.
ODD_BYTES = (
    *(b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\n\n", b"\\ud800", b"\x1b[2J"),
    *(b"nan", b"-inf", b"1e999", b"-1", b"0", b"1e-320", b"9" * 25, b"9" * 5000, b"1_000", b"0x10", b"\xd9\xa3", b"."),
    *(b"[" * 3000, b'{"a":' * 3000, b"(" * 300, b'"', b"'", b"{}", b"[]", b"null", b"true", b",", b":", b"|", b"*&a"),
    *(b"../../x", b"/dev/zero", b"9999-12-31 23:59:59", b"0000-00-00 00:00:00", b"%s{}", b"{0.__class__}"),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308, -1e308, 1e-320),
    *(float("nan"), float("inf"), "", "x", "nan", "\ud800", "\0", "/", "..", "../x", "/dev/zero", "1" * 400, "é"),
    *([], {}, [[]], [None], [1, "x"], {"": None}, {"x": {}}, [{}]),
)


def mutated(base: bytes) -> SearchStrategy[bytes]:
    """Bytes with a few edits: changed, removed, repeated or inserted at any place, or cut off."""
    place = st.integers(0, max(len(base), 1))
    length = st.one_of(st.integers(0, 16), st.integers(0, max(len(base), 1)))
    payload = st.one_of(st.sampled_from(ODD_BYTES), st.binary(max_size=8))
    edits = st.lists(st.tuples(st.integers(0, 4), place, length, payload), min_size=1, max_size=4)
    return edits.map(lambda drawn: _edited(base, drawn))


def _edited(base: bytes, edits: list[tuple[int, int, int, bytes]]) -> bytes:
    for kind, place, length, payload in edits:
        end = place + length
        match kind:
            case 0:  # overwrite
                base = base[:place] + payload + base[place + len(payload) :]
            case 1:  # replace or insert
                base = base[:place] + payload + base[end:]
            case 2:  # repeat
                base = base[:end] + base[place:end] * (1 + len(payload)) + base[end:]
            case 3:  # flip a bit
                if place < len(base):
                    base = base[:place] + bytes([base[place] ^ 1 << length % 8]) + base[place + 1 :]
            case _:  # cut off
                base = base[:place]
    return base


def mutated_json(tree: Any) -> SearchStrategy[bytes]:
    """A JSON text in which some values are others, removed or added; sometimes no JSON any more."""
    paths = [path for path in _paths(tree) if path]
    value = st.one_of(st.sampled_from(ODD_VALUES), st.integers(), st.floats(), st.text(max_size=8))
    change = st.tuples(st.sampled_from(paths) if paths else st.just(()), st.integers(0, 3), value)
    changed = st.lists(change, min_size=1, max_size=3).map(lambda drawn: _changed(tree, drawn))
    return st.one_of(changed, changed, mutated(_text(tree)), st.sampled_from(ODD_BYTES))


def _changed(tree: Any, changes: list[tuple[tuple[str | int, ...], int, Any]]) -> bytes:
    copy = json.loads(json.dumps(tree))
    for path, kind, value in changes:
        holder = copy
        for part in path[:-1]:
            held = isinstance(holder, dict) and part in holder
            listed = isinstance(holder, list) and isinstance(part, int) and part < len(holder)
            holder = holder[part] if held or listed else None
        last = path[-1] if path else ""
        if isinstance(holder, dict):
            if kind == 0:
                holder.pop(last, None)
            elif kind == 1:
                holder[str(value)] = holder.get(last)
            else:
                holder[last] = value
        elif isinstance(holder, list) and isinstance(last, int) and last < len(holder):
            holder[last] = value
    return _text(copy)


def _text(tree: Any) -> bytes:
    return json.dumps(tree, indent=2).encode(errors="surrogatepass")


def _paths(tree: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield above
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(value, (*above, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree[:3]):
            yield from _paths(value, (*above, place))
