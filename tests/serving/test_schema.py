"""What the OpenAPI schema allows is answered as it says, and what it does not allow is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tests.serving.servers import RunningServer

pytestmark = pytest.mark.slow

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 15


def test_whatever_the_schema_allows_or_forbids_is_answered_as_it_says(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    assert isinstance(schema, OpenApiSchema)
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    operations: list[Any] = [cast(Any, result).ok() for result in schema.get_all_operations()]
    assert {f"{each.method.upper()} {each.path}" for each in operations} >= {
        "POST /translate",
        "POST /translate/stream",
        "POST /align",
        "POST /detect",
        "POST /translate_file",
    }
    statuses: dict[str, set[int]] = {}
    for operation in operations:

        @settings(max_examples=EXAMPLES, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
        def ask(case: Any) -> None:
            answer = case.call(timeout=120)
            case.validate_response(answer, checks=CHECKS)
            statuses.setdefault(case.operation.path, set()).add(answer.status_code)

        ask()
    for path in ("/translate", "/translate/stream", "/align", "/detect"):
        assert statuses[path] >= {200, 400}, path
    assert 400 in statuses["/translate_file"]  # a schema cannot say how a file's name must end
    assert server.process.poll() is None
