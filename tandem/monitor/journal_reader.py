"""Reads lines of journals, each checked against the types of its record; for `tandem watch` and the report alike."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from tandem.monitor.records import AnyRecord, Record

# Every line begins with its time and its kind, which can be read without parsing the line.
_TIME = re.compile(rb'\{"time": "([^"]*)"')
_KIND = re.compile(rb'"kind": "([a-z]+)"')
_HEAD_BYTES = 80
_KINDS: dict[bytes, str] = {kind.kind.encode(): kind.kind for kind in get_args(get_args(AnyRecord)[0])}
# The validator itself takes a sixth less time than its adapter: reports read millions of lines.
_VALIDATOR = TypeAdapter(AnyRecord).validator


class UnreadableRecordError(Exception):
    """A line of JSON that is not a record as this version of Tandem writes it."""


def time_text(line: bytes) -> bytes:
    """The time of a line as it is written there; times of UTC sort as they passed."""
    found = _TIME.match(line)
    return found[1] if found else b""


def kind_of(line: bytes) -> str | None:
    """The kind of record that a line claims to hold; None if this version of Tandem has no such kind."""
    found = _KIND.search(line, 0, _HEAD_BYTES)
    return _KINDS.get(found[1]) if found else None


def read_record(line: bytes) -> Record | None:
    """The record on a line of a journal, with its time; None for a torn line, left by a process that was killed."""
    try:
        record: Record = _VALIDATOR.validate_json(line, strict=True)
    except ValidationError:
        try:
            content = json.loads(line, parse_float=_whole_if_possible)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or "kind" not in content:
            return None
        record = _validate_again(content)
    # Other years cannot be shown in every time zone.
    if record.time is None or not 1970 <= record.time.year < 9999:
        raise UnreadableRecordError
    return record


def _validate_again(content: dict[str, Any]) -> Record:
    """Now with numbers as 100 that came as 100.0, and without lone surrogates from file names that are not UTF-8."""
    try:
        line = json.dumps(content, ensure_ascii=False).encode(errors="replace")
        record: Record = _VALIDATOR.validate_json(line, strict=True)
    except ValidationError as error:
        raise UnreadableRecordError from error
    return record


def _whole_if_possible(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number
