"""Example records for tests: state the values that matter, the others are filled in by their types."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")

FILLINGS: dict[str, Any] = {
    **dict.fromkeys(("Count", "PositiveCount"), 1),
    **dict.fromkeys(("float", "Number", "PositiveNumber"), 0.5),
    "dict[str, float]": {"compute": 0.5},
    "dict[str, Number]": {"compute": 0.5},
    "str": "text",
    "list[str]": ["vm1"],
    "list[GpuUse]": [],
}
"""Values by type; None for any other type."""


def example(kind: type[T], **values: Any) -> T:
    """A record, or a part of one, with these values; fields that have a default keep it."""
    assert dataclasses.is_dataclass(kind)
    missing = (
        field
        for field in dataclasses.fields(kind)
        if field.name not in (*values, "kind")
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )
    return kind(**{field.name: FILLINGS.get(str(field.type)) for field in missing}, **values)
