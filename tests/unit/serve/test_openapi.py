"""Property tests from the service's own OpenAPI: whatever is sent, the answer is one that it promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.service import SUITE, Running, service_in

from opsmith.serve.store.tokens import Role

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
    ignored_auth,
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a run in it, so that some of what is asked for exists."""
    with service_in(tmp_path_factory.mktemp("service")) as made:
        client = made.client()
        body = {"kernels": [{"task": "relu.default", "source": "def relu_kernel_impl(self): ...  # right"}]}
        assert 202 == client.post("/api/rewards", json=body).status_code
        yield made


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_is_one_that_the_page_promises(mode: GenerationMode, running: Running) -> None:
    """Status, content type and fields; wrong data and missing tokens are refused, and nothing ends in a 500."""
    # The routes that answer at once: the stream of events has tests of its own.
    schema = schemathesis.openapi.from_asgi("/openapi.json", running.app).exclude(path_regex="/events$")
    headers = {"Authorization": f"Bearer {running.secrets[Role.ADMIN]}"}
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
            continue  # Nothing can be wrong with it.

        @settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def holds(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(headers=headers, checks=CHECKS)

        holds()


def test_the_routes_under_test_are_most_of_them(running: Running) -> None:
    """And each has words of its own."""
    operations = [each for methods in running.app.openapi()["paths"].values() for each in methods.values()]
    assert len(operations) > 15
    assert [] == [each["operationId"] for each in operations if not each.get("description")]
    assert SUITE in running.service.suites
