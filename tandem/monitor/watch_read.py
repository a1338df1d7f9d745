"""Turns a line of a journal into a record in which every field is what its type says, or into nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tandem.monitor.records import (
    Ended,
    Evaluated,
    Noticed,
    Planned,
    Progressed,
    Record,
    Sampled,
    Saved,
    Started,
    Surveyed,
)

# No count and no measure of a run comes near it; what is larger is damage, and its sums would run over.
LARGEST = 1e18
# These may be anything a number can be: a loss that is none any more is a thing to be seen.
UNBOUNDED = frozenset({"train_loss", "objective", "gradient_norm", "eval_loss", "perplexity", "slow_downs"})

AnyData = TypeVar("AnyData")
Reader = Callable[[Any], Any]
"""Makes a value of its type out of what JSON holds; an error (see `FAULTS`) where that is something else."""

# What is missing, of another type, out of range, or beyond the calendar.
FAULTS = (LookupError, TypeError, ValueError, OverflowError)


def read_line(line: Mapping[str, Any]) -> tuple[float, Record] | None:
    """When a line was written, and its record; None where it is not as this version of Tandem writes it."""
    try:
        # A moment that has no date on this host's calendar cannot be shown.
        moment = datetime.fromisoformat(line["time"]).astimezone()
        return moment.timestamp(), READERS[line["kind"]](line)
    except FAULTS:
        return None


def _data_reader(kind: type[AnyData]) -> Callable[[Mapping[str, Any]], AnyData]:
    """For a dataclass; what it does not know is left aside, and only a field with a default may be missing: journals
    that were written before there was such a field are read, too."""
    assert dataclasses.is_dataclass(kind)
    types = get_type_hints(kind)
    fields = {
        field.name: _reader(types[field.name], bounded=field.name not in UNBOUNDED)
        for field in dataclasses.fields(kind)
    }
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def read(values: Mapping[str, Any]) -> AnyData:
        there = {name: one for name, one in fields.items() if name in required or name in values}
        return kind(**{name: read_field(values[name]) for name, read_field in there.items()})

    return read


def _reader(kind: Any, bounded: bool) -> Reader:
    """For any type that a record has; one that is not known here is a mistake in this module."""
    simple: dict[Any, Reader] = {str: _text, bool: _flag, int: _whole, float: _measure if bounded else _number}
    if kind in simple:
        return simple[kind]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _data_reader(kind)
    parts = [_reader(part, bounded) for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) is UnionType and len(parts) == 1:
        return lambda value: None if value is None else parts[0](value)
    if get_origin(kind) is list:
        return lambda value: [parts[0](one) for one in _of_type(list, value)]
    if get_origin(kind) is dict:
        return lambda value: {parts[0](key): parts[1](one) for key, one in _of_type(dict, value).items()}
    raise NotImplementedError(f"records with fields of type {kind}")


def _of_type(kind: type[AnyData], value: Any) -> AnyData:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    return _of_type(str, value)


def _flag(value: Any) -> bool:
    return _of_type(bool, value)


def _number(value: Any) -> float:
    # To Python, true and false are numbers, too.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def _measure(value: Any) -> float:
    number = _number(value)
    # Put so that it holds for what is not a number, too.
    if not abs(number) <= LARGEST:
        raise ValueError(value)
    return number


def _whole(value: Any) -> int:
    """JSON has but one kind of number: 100.0 is as whole as 100."""
    if not math.floor(_measure(value)) == value:
        raise ValueError(value)
    return int(value)


def _sampled(line: Mapping[str, Any]) -> Sampled:
    """A sample of which shares can be taken: it lasted for a while, and memories have a size."""
    sampled = READ_SAMPLED(line)
    if not all(size > 0 for size in (sampled.use.seconds, sampled.use.memory_total_bytes)):
        raise ValueError(sampled)
    if not all(gpu.memory_total_bytes is None or gpu.memory_total_bytes > 0 for gpu in sampled.use.gpus):
        raise ValueError(sampled)
    return sampled


def _evaluated(line: Mapping[str, Any]) -> Evaluated:
    """Without the sentences, for which a small picture has no room."""
    return READ_EVALUATED({**line, "samples": []})


READ_SAMPLED, READ_EVALUATED = _data_reader(Sampled), _data_reader(Evaluated)
READERS: dict[str, Callable[[Mapping[str, Any]], Record]] = {
    Sampled.kind: _sampled,
    Evaluated.kind: _evaluated,
    **{kind.kind: _data_reader(kind) for kind in (Started, Planned, Progressed, Surveyed, Saved, Noticed, Ended)},
}
