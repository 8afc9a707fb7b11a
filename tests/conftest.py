"""Settings that must be made before anything imports Triton or torch, which read them once; databases for tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Without a device, kernels run under Triton's interpreter; TRITON_INTERPRET=0 runs them on a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# With an empty cache Inductor would compile for 6 s of a processor to find out which vector extensions work. A pool of
# processes to compile in takes seconds to start, and tests run beside each other already.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Tests of installed kernels want them called, faster or not; those of the choice say choose="measured".
os.environ.setdefault("OPSMITH_CHOOSE", "all")


def pytest_collection_finish() -> None:
    """What was imported stays: no collection has to look through it."""
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL database that tests may empty; without one they are skipped.

    It is that of ``OPSMITH_TEST_POSTGRES``, else one of Debian's package, which runs as long as the tests do.
    """
    from benchmarks.chaos.place import is_installed
    from benchmarks.chaos.place import postgres as started

    if named := os.environ.get("OPSMITH_TEST_POSTGRES"):
        yield named
    elif is_installed():
        with started() as url:
            yield url
    else:
        pytest.skip("no PostgreSQL: apt-get install postgresql, or name an empty database in OPSMITH_TEST_POSTGRES")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of either kind, without tables."""
    from tests.service import emptied

    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'service.sqlite'}"
    url = str(request.getfixturevalue("postgres"))
    emptied(url)
    return url
