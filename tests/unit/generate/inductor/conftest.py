"""The real compiler, for the tests that ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opsmith.generate.inductor import Compiler


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    """The compiler, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with Compiler() as started:
            yield started
