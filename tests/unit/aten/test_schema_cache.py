"""Schemas that are kept between processes are torch's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from opsmith.aten import schema_cache as module
from opsmith.aten.schema_cache import kept_schemas
from opsmith.aten.schemas import aten_schemas


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a process that has read nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept_schemas.cache_clear()
    yield tmp_path / "opsmith" / "schemas"
    kept_schemas.cache_clear()


def nothing_is_read() -> None:
    """Stands for reading torch's schemas where that should not happen."""
    pytest.fail("the schemas were read again")


def test_a_second_process_reads_what_the_first_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, without a look at torch's own."""
    assert aten_schemas() == kept_schemas()
    kept_schemas.cache_clear()
    monkeypatch.setattr(module, "aten_schemas", nothing_is_read)
    assert aten_schemas() == kept_schemas()


def test_another_torch_has_schemas_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags may differ where all texts are the same."""
    kept_schemas()
    kept_schemas.cache_clear()
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    kept_schemas()
    assert 2 == len(list(cache.iterdir()))


def test_a_damaged_file_is_made_again(cache: Path) -> None:
    """It costs the time that it would have saved."""
    kept_schemas()
    [file] = cache.iterdir()
    good = file.read_bytes()
    file.write_bytes(good[:1000])
    kept_schemas.cache_clear()
    assert aten_schemas() == kept_schemas()
    assert good == file.read_bytes()


def test_a_cache_that_cannot_be_written_to_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder would be."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert aten_schemas() == kept_schemas()
