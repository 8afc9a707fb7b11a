"""A kernel that computes nothing is accepted only where there is nothing to compute."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes
from tests.trivial.suite import ENTRIES

from opsmith import pipeline
from opsmith.core.run import Options, Summary

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "trivial-kernels.md"
pytestmark = [pytest.mark.slow, pytest.mark.corpus]

KERNELS = ("zeros", "ones", "first_argument")

_ROW = re.compile(r"^\| (?P<ops>`[^|]*) \| (?P<kernels>[^|]*) \| [^|]+ \|$", re.MULTILINE)


def documented(kernel: str) -> set[str]:
    """The overloads for which the page says that ``kernel`` is right."""
    return {
        op
        for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))
        if f"`{kernel}`" in row["kernels"] or row["kernels"] == "all"
        for op in re.findall(r"`([^`]+)`", row["ops"])
    }


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Summary]:
    """The summaries of three runs, one for each kind of trivial kernel."""
    folder = tmp_path_factory.mktemp("trivial")
    with pytest.MonkeyPatch.context() as patch:
        _install_suite(folder, patch)
        with shared_processes("trivial"):
            return {kernel: _judge(kernel, folder / kernel) for kernel in KERNELS}


def _install_suite(folder: Path, patch: pytest.MonkeyPatch) -> None:
    info = folder / "trivial_suite-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trivial-suite\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[opsmith.suites]\ntrivial = tests.trivial.suite:Trivial\n")
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    patch.setenv("XDG_CACHE_HOME", str(folder))


def _judge(kernel: str, out: Path) -> Summary:
    options = Options(
        suite="trivial",
        backend=f"tests.trivial.kernels:{kernel}",
        dtypes=("bf16",),
        device="cpu",
        timing="off",
        isolation="backend",
        integrity="off",  # This is about what the suite's own cases can tell.
    )
    return pipeline.evaluate(options, out, jobs=1)


def accepted(summary: Summary) -> set[str]:
    """The overloads whose every case passed."""
    return {op for op, score in summary.per_op.items() if score.accepted}


def test_every_entry_of_the_suite_exists(judged: dict[str, Summary]) -> None:
    """An entry that torch renames would otherwise drop out of the tests below."""
    packets = {op.partition(".")[0] for op in judged["zeros"].per_op}
    assert {entry.rpartition(".")[2] for entry in ENTRIES} <= packets


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_trivial_kernel_is_accepted_only_where_it_is_documented_as_right(
    judged: dict[str, Summary], kernel: str
) -> None:
    """Whatever else it answers rightly is an op whose inputs or comparison are too weak."""
    assert set() == accepted(judged[kernel]) - documented(kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_trivial_kernel_is_accepted_where_it_is_right(judged: dict[str, Summary], kernel: str) -> None:
    """The trivial kernels fail for their values, not because they fail at everything."""
    assert documented(kernel) & set(judged[kernel].per_op) == accepted(judged[kernel]) & documented(kernel)
