"""Faults in what a user wrote down: pydantic's errors as lines that name the key, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tandem.errors import TandemError

Location = tuple[int | str, ...]
Model = type[BaseModel]


@dataclass(frozen=True)
class Fault:
    """Something wrong with one setting, and what to do about it."""

    key: str
    message: str
    other_key: str | None = None
    """The setting it contradicts."""

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


def raise_faults(faults: Sequence[Fault], what: str, origin: str) -> None:
    """Raise one error that lists all faults, if there are any."""
    if faults:
        count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
        raise TandemError("\n  ".join([f"{count} in {what} ({origin}):", *map(str, faults)]))


def close_match(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant."""
    begun = [each for each in known if each.startswith(f"{name}_")]
    return next(iter(begun or difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)


def hint(location: Location, model: Model) -> str:
    """What an unknown key may have been meant to be, or what there is in its place."""
    known = list(_find(location[:-1], model)[0].model_fields)
    alike = close_match(str(location[-1]), known)
    return f"did you mean {alike}?" if alike else f"there is {', '.join(known)}"


def faults_in(error: ValidationError, model: Model, hint: Callable[[Location, Model], str] = hint) -> Iterator[Fault]:
    """The faults that pydantic found, each with the sentence that documents the setting."""
    for problem in error.errors():
        location = tuple(part for part in problem["loc"] if part != "[key]")
        yield Fault(dotted(location) or "all of it", _message(problem, location, model, hint))


def dotted(location: Location) -> str:
    """A place in a tree as people write it; the items of a list count from 1."""
    return ".".join(f"#{part + 1}" if isinstance(part, int) else part for part in location)


def _message(
    problem: Mapping[str, Any], location: Location, model: Model, hint: Callable[[Location, Model], str]
) -> str:
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        return f"unknown; {hint(location, model)}"
    reason: str = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind == "value_error" and isinstance(value, dict):  # of settings that are wrong together
        return reason
    description = " ".join(_find(location, model)[1].split())
    about = f"; {description}" if description else ""
    if kind == "missing":
        return f"missing{about}"
    if kind == "model_type":  # whose own words name a class of ours
        return f"should be settings, one a line below it, not {_shown(value)}{about}"
    if kind == "string_pattern_mismatch":  # the sentence says it better than the pattern
        return f"{value!r} does not fit{about}"
    return f"{reason}, not {_shown(value)}{about}"


def _shown(value: Any) -> str:
    """A value as people write it in YAML; Python has words of its own for true, false and nothing."""
    if value is None:
        return "empty"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _find(location: Location, model: Model) -> tuple[Model, str]:
    """The model at a place of the tree, and the sentence of the innermost setting there."""
    description = ""
    for part in location:
        # Positions in a list and keys of a mapping are no settings.
        if field := model.model_fields.get(str(part)):
            description = field.description or ""
            model = next(_models_in(field.annotation), model)
    return model, description


def _models_in(annotation: Any) -> Iterator[Model]:
    """The models that a type such as `list[PairSource]` or `SplitSource | None` speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
