"""Every case of values, rules, counts and devices, run in child processes."""

from __future__ import annotations

import functools

import pytest

from tests.rehearsal import children

pytestmark = pytest.mark.slow

MODULES = ("cases_values", "cases_rules", "cases_counts", "cases_machine")

outcomes = functools.cache(children.run)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in MODULES for name in children.names(module)])
def test_case(module: str, name: str) -> None:
    failure = outcomes(module)[name]
    assert not failure, failure
