"""The pages in docs/kernels: every op on one of them, figures those of the records, bytes those of the floor."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from benchmarks.kernels.family_pages import (
    FIRST_LOOK,
    INDEX,
    KERNELS,
    MARK,
    RECORDS,
    Record,
    family_pages,
    family_part,
    files_of,
    first_looks,
    index_part,
    latest_figures,
    ops_by_file,
    ops_of,
    rewritten,
    timed_records,
)
from tests.described_calls import described, recorded, work_with_results
from tests.traffic_calls import CALLS
from torch.utils._pytree import tree_leaves

from opsmith.aten.schemas import overload
from opsmith.backends import manifest

PAGES = family_pages()
_ROW = re.compile(r"^\| (.*) \| `([^`]*)` \|$", re.MULTILINE)
_OP = re.compile(r"`([\w]+\.\w+)`")


def stated_traffic() -> list[tuple[str, str, str]]:
    """Page, op and formula of each row below a heading "Traffic"."""
    found = []
    for page in PAGES:
        section = page.read_text(encoding="utf-8").partition("## Traffic\n")[2].partition(MARK)[0]
        found += [(page.stem, _OP.findall(kind)[0], formula) for kind, formula in _ROW.findall(section)]
    return found


def test_every_file_of_the_shipped_kernels_is_on_exactly_one_page() -> None:
    """And so is every op, through the file that answers it; a new file belongs into the line "Files:" of a page."""
    pages = Counter(file for page in [INDEX, *PAGES] for file in files_of(page))
    there = {path.relative_to(KERNELS).as_posix() for path in KERNELS.rglob("*.py") if path.name != "__init__.py"}
    assert there == set(pages)
    assert {1} == set(pages.values())
    described = manifest.read(KERNELS)
    assert {entry.file for entry in (described.kernels | described.ranks).values()} <= there


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_a_page_is_about_the_folder_of_its_name(page: Path) -> None:
    """Who reads about a family finds its files together; the index describes what all of them share."""
    folder = "common" if page == INDEX else page.stem.replace("-", "_")
    assert {folder} == {file.partition("/")[0] for file in files_of(page)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_made_from_the_records(page: Path) -> None:
    """Otherwise: ``python -m benchmarks.kernels.family_pages``."""
    entries, figures = ops_by_file(), latest_figures(timed_records(RECORDS), ops_by_file())
    looks = [look for look in first_looks(FIRST_LOOK.read_text(encoding="utf-8")) if look.family == page.stem]
    text = page.read_text(encoding="utf-8")
    assert text == rewritten(text, family_part(ops_of(page, entries), figures, looks))


def test_the_overview_is_made_from_the_records() -> None:
    """As above."""
    text = INDEX.read_text(encoding="utf-8")
    assert text == rewritten(text, index_part(ops_by_file(), latest_figures(timed_records(RECORDS), ops_by_file())))


def bytes_of(values: Any) -> int:
    """Of all tensors among them, each once."""
    return sum(leaf.numel() * leaf.itemsize for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def evaluated(formula: str, named: dict[str, int]) -> int:
    """A sum of names, some of them with a factor."""
    total = 0
    for term in formula.split(" + "):
        factor, _, name = term.rpartition(" * ")
        total += int(factor or 1) * named[name]
    return total


@pytest.mark.parametrize(("page", "op", "formula"), stated_traffic())
def test_a_stated_traffic_is_what_the_floor_counts(page: str, op: str, formula: str) -> None:
    """A formula on a page is checked with a call."""
    sample = CALLS[op]
    results = overload(op)(*sample.args, **sample.kwargs) if sample.results is None else sample.results
    call = recorded(op, *sample.args, **sample.kwargs)
    work = work_with_results(call, described(results, (sample.args, sample.kwargs)))
    names = [argument.name for argument in overload(op)._schema.arguments]
    given = {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}
    leaves = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    named = {name: bytes_of(value) for name, value in given.items()} | dict(sample.parts)
    named |= {f"result{number or ''}": bytes_of(leaf) for number, leaf in enumerate(leaves)}
    assert work.traffic_bytes == evaluated(formula, named | {"results": bytes_of(results)}), page


def test_every_sample_is_stated_and_every_page_states_some() -> None:
    """A page without a row has no traffic, and a sample without one is left over; over links the floor counts none."""
    stated = stated_traffic()
    assert set(CALLS) == {op for _, op, _ in stated}
    assert {page.stem for page in PAGES if page.stem != "communication"} == {page for page, _, _ in stated}


def record(
    folder: Path,
    *,
    started: str,
    speedup: float,
    timing: str = "quick",
    backend: str = "opsmith",
    op: str = "relu.default",
) -> None:
    """A run of one op as benchmarks/h200.sh keeps it."""
    folder.mkdir(parents=True)
    options = {"suite": "traces", "backend": backend, "dtypes": ["bf16"], "timing": timing}
    run = {"options": options, "environment": {"torch": "2.13.0", "device_name": "GPU"}, "started_utc": started}
    found = {
        "accepted": True, "answered": True, "cases": 2, "passed": 2, "statuses": {"PASSED": 2}, "error_cases": {},
        "dishonest": 0, "derived": False, "layout_differs": 0, "speedup_k": speedup, "speedup_e": 0.5,
        "percent_of_floor": 91.4, "dsl": "triton",
    }  # fmt: skip
    (folder / "run.json").write_bytes(msgspec.json.encode(run))
    (folder / "summary.json").write_bytes(msgspec.json.encode({"per_op": {op: found}}))


def test_the_latest_timed_run_of_the_shipped_kernels_counts(tmp_path: Path) -> None:
    """Not one of another backend, not one without timings, and of two the one that began later."""
    record(tmp_path / "gpu" / "newer", started="2026-12-02T00:00:00+00:00", speedup=2.0)
    record(tmp_path / "gpu" / "older", started="2026-12-01T00:00:00+00:00", speedup=1.0)
    record(tmp_path / "gpu" / "gems", started="2026-12-03T00:00:00+00:00", speedup=3.0, backend="flag_gems")
    record(tmp_path / "gpu" / "untimed", started="2026-12-04T00:00:00+00:00", speedup=4.0, timing="off")
    (figure,) = latest_figures(timed_records(tmp_path), {"pointwise.py": ["relu.default"]})
    assert ("relu.default", "newer", 2.0) == (figure.op, figure.record.folder.name, figure.found.speedup_k)


def test_a_new_record_fills_a_page_that_said_that_there_is_none(tmp_path: Path) -> None:
    """A page says plainly what has not been measured, and fills itself."""
    entries = {"pointwise.py": ["relu.default", "add.Tensor", "add.Scalar"]}
    empty = family_part(entries, [], [])
    assert "No record with timings has an op of this family yet." in empty
    assert "| `pointwise.py` | `relu`, `add` (Tensor, Scalar) |" in empty
    record(tmp_path / "gpu" / "new", started="2026-12-02T00:00:00+00:00", speedup=2.0)
    (found,) = timed_records(tmp_path)
    filled = family_part(entries, latest_figures([Record(RECORDS / "gpu" / "new", *found[1:])], entries), [])
    assert "| `relu.default` | `new` | bf16 | 2 of 2 | 2.00x | 0.50x | 91 |" in filled
    assert "No record" not in filled


def test_a_derived_form_is_on_the_page_of_its_functional_kernel(tmp_path: Path) -> None:
    """`relu_` has no entry of its own, and its figures are those of the kernel that answers it."""
    record(tmp_path / "gpu" / "new", started="2026-12-02T00:00:00+00:00", speedup=2.0, op="relu_.default")
    (figure,) = latest_figures(timed_records(tmp_path), {"pointwise.py": ["relu.default"]})
    assert ("relu_.default", "pointwise.py") == (figure.op, figure.file)
    assert [] == latest_figures(timed_records(tmp_path), {"scans.py": ["cumsum.default"]})


def test_of_a_call_that_was_looked_at_twice_the_later_row_counts() -> None:
    """The file begins with an earlier form of the same rows."""
    text = (
        "float32 attention 8x12x1024x64 causal   eager   482.1 us  kernels  1423.7 us   0.34x  error 1e-7 1e-7\n"
        "float32 8x12x1024x64 causal             eager   485.7 us  kernels   831.7 us   0.58x  error 1e-7 1e-7\n"
        "float16 convolution 8x128x32 -> 64 k4   eager    25.0 us  kernels    77.1 us   0.32x  error 1e-4 1e-4\n"
        "64x64x64 NT cublas  2703.1 us  50.8 TFLOPS, error 2.8e-06; mm 1.62x, error 5.3e-07\n"
    )
    assert [
        ("attention", "8x12x1024x64 causal", 485.7, 0.58),
        ("convolution", "8x128x32 -> 64 k4", 25.0, 0.32),
        ("matmul", "64x64x64 NT", 2703.1, 1.62),
    ] == [(look.family, look.call, look.eager_us, look.speedup) for look in first_looks(text)]


@pytest.mark.parametrize("text", ["no mark", f"{MARK} twice {MARK}"])
def test_a_page_without_its_mark_is_not_overwritten(text: str) -> None:
    """What somebody has written stays."""
    with pytest.raises(ValueError, match="needs the line"):
        rewritten(text, "")
