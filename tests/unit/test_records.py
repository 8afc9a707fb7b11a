"""The records in benchmarks/results: a folder each, with command and machine, on the page of their subject."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.records import RESULTS, read

PAGES = sorted(RESULTS.glob("*/README.md"))
#: Subject, machine, name.
RECORDS = sorted(path for path in RESULTS.glob("*/*/*") if path.is_dir())
LARGEST = 64 * 1024
#: As `opsmith report --baseline-times` reads them.
AS_THEY_ARE = "baseline_time_"


def test_the_records_are_found() -> None:
    """The tests below are about the real records, and no file of one lies outside of a record's folder."""
    assert 100 <= len(RECORDS)
    outside = {path for path in RESULTS.rglob("*") if path.is_file() and path.name != "README.md"}
    assert set() == {path for path in outside if not any(path.is_relative_to(record) for record in RECORDS)}


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_record_names_its_command_and_its_machine(record: Path) -> None:
    """A figure that nobody can measure again is none; one without its machine says nothing."""
    run = json.loads((record / "run.json").read_bytes())
    assert run["command"]
    assert {"cpu", "cpu_count", "device_name", "device"} & set(run["environment"])


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_record_is_on_the_page_of_its_subject(record: Path) -> None:
    """By its name, or by the end of it that tells it from the one before: ``-public-sample``."""
    page = (record.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"{record.parent.name}/{record.name}/" in page


def test_every_subject_is_on_the_index() -> None:
    """Whoever opens the folder finds all of them."""
    index = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert [] == [page for page in PAGES if f"({page.parent.name}/README.md)" not in index]
    assert {page.parent for page in PAGES} == {record.parents[1] for record in RECORDS}


def test_large_files_are_compressed() -> None:
    """A clone carries figures, and not megabytes of JSON."""
    large = [path for path in RESULTS.rglob("*") if path.is_file() and path.stat().st_size > LARGEST]
    assert [] == [path for path in large if path.suffix != ".gz" and not path.name.startswith(AS_THEY_ARE)]


def test_a_file_is_read_whether_it_is_compressed_or_not(tmp_path: Path) -> None:
    """Whoever reads a record need not know its size."""
    (tmp_path / "small.json").write_bytes(b"{}")
    (tmp_path / "large.json.gz").write_bytes(gzip.compress(b"[]"))
    assert (b"{}", b"[]") == (read(tmp_path / "small.json"), read(tmp_path / "large.json"))
    assert b"[]" == read(tmp_path / "large.json.gz")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "neither.json")
