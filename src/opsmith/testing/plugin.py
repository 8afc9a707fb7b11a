"""The pytest plug-in: a marker ``opsmith`` and a fixture ``opsmith_check``.

::

    @pytest.mark.opsmith(dtype="bf16", device="cuda")
    def test_my_gelu(opsmith_check):
        opsmith_check("kernels/gelu.py", "gelu.default")

The marker's arguments are those of :func:`opsmith.testing.check`. Every test that uses the fixture has it, so
``pytest -m "not opsmith"`` leaves all of them out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

MARKER = "opsmith"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for ``--strict-markers``."""
    config.addinivalue_line("markers", f"{MARKER}(**options): judges kernels; options of opsmith.testing.check")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that uses the fixture."""
    if "opsmith_check" in getattr(item, "fixturenames", ()) and item.get_closest_marker(MARKER) is None:
        item.add_marker(MARKER)


@pytest.fixture
def opsmith_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """:func:`opsmith.testing.check`, with the marker's options."""
    from opsmith.testing import check

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        options |= mark.kwargs
    return functools.partial(check, **options)
