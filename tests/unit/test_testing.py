"""Kernels in other people's tests: one function, and a pytest plug-in."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shared_processes import shared_processes

from opsmith.errors import BadInput, UsageError
from opsmith.testing import NotAccepted, _place, check

pytest_plugins = ["pytester"]

RIGHT = "def relu(x):\n    return x.clamp(min=0)\n"
WRONG = "def relu(x):\n    return x\n"


def _shared_by_nobody(x: object) -> object:
    return x


@pytest.fixture(scope="module", autouse=True)
def _shared() -> Iterator[None]:
    with shared_processes("smoke"):
        yield


@pytest.mark.slow
def test_a_right_kernel_returns_its_scores(tmp_path: Path) -> None:
    """A file, named with or without its function."""
    (tmp_path / "mine.py").write_text(RIGHT)
    summary = check(tmp_path / "mine.py", "F.relu", suite="smoke", device="cpu", policy="any")
    assert (True, ["relu.default"]) == (summary.accepted, list(summary.per_op))


@pytest.mark.slow
def test_a_function_is_judged_as_its_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded in a process of its own, in which no file may import opsmith."""
    (tmp_path / "kernels_of_mine.py").write_text(RIGHT)
    monkeypatch.syspath_prepend(str(tmp_path))
    relu = importlib.import_module("kernels_of_mine").relu
    assert (tmp_path / "kernels_of_mine.py", "relu") == _place(relu)
    with pytest.raises(BadInput, match="imports opsmith, which no kernel may"):
        check(_shared_by_nobody, "relu.default", suite="smoke", device="cpu")
    with pytest.raises(BadInput, match="no function at the top of a file"):
        check(lambda x: x, "relu.default", suite="smoke", device="cpu")


@pytest.mark.slow
def test_a_wrong_kernel_fails_the_test_with_the_verdict(tmp_path: Path) -> None:
    """The text is what the command line prints, the verdict first."""
    (tmp_path / "mine.py").write_text(WRONG)
    with pytest.raises(NotAccepted) as failed:
        check(f"{tmp_path}/mine.py:relu", "relu.default", suite="smoke", device="cpu")
    assert str(failed.value).startswith("NOT ACCEPTED  relu.default: ")
    assert not failed.value.summary.accepted


def test_a_wrong_request_is_told(tmp_path: Path) -> None:
    """Before anything is started."""
    (tmp_path / "mine.py").write_text(RIGHT)
    with pytest.raises(UsageError, match="did you mean relu"):
        check(tmp_path / "mine.py", "reul")


def test_the_plug_in_marks_tests_and_passes_the_markers_options(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of the marker reach the function; a test that uses the fixture can be left out by the marker."""
    pytester.makeconftest("pytest_plugins = ['opsmith.testing.plugin']")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.opsmith(dtype="bf16", device="cpu")
        def test_options(opsmith_check):
            assert {"dtype": "bf16", "device": "cpu"} == opsmith_check.keywords

        def test_unmarked(opsmith_check):
            assert {} == opsmith_check.keywords

        def test_other():
            pass
        """
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # Where opsmith is installed, its entry point is there.
    plain = ("-p", "no:cacheprovider", "--strict-markers")
    pytester.runpytest_inprocess(*plain).assert_outcomes(passed=3)
    pytester.runpytest_inprocess(*plain, "-m", "not opsmith").assert_outcomes(passed=1, deselected=2)
