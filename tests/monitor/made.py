"""Records for the tests of the monitor room: state what matters, the rest is filled in by its type."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from tandem.monitor.records import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)

FILLINGS: dict[str, Any] = {
    "int": 1,
    "float": 0.5,
    "str": "text",
    "dict[str, float]": {"compute": 0.5},
    "list[str]": ["vm1"],
}


def made(kind: type[AnyRecord], **values: Any) -> AnyRecord:
    """A record of this kind with these values; fields that have a default keep it."""
    missing = (
        field
        for field in dataclasses.fields(kind)
        if field.name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )
    return kind(**{field.name: FILLINGS.get(str(field.type)) for field in missing}, **values)
