"""The lanes of `make test`: what failed runs once more, and a test that then passes is named as flaky."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / ".ci"

PASSES_AT_THE_SECOND_TRY = """
from pathlib import Path

def test_flaky():
    tried = Path(__file__).with_name("tried")
    seen = tried.exists()
    tried.touch()
    assert seen
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with our `.ci`, in which `.venv` is this interpreter and the only tests are those that a test adds."""
    shutil.copytree(CI, tmp_path / ".ci")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The finished command, run in the root of the project; no plug-in of pytest is loaded, which takes seconds."""
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=tree, env=plain, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_a_test_that_passes_at_the_second_try_is_named_and_counted(tree: Path) -> None:
    """A lane with a flaky test succeeds, and the test is not forgotten."""
    (tree / "test_one.py").write_text(PASSES_AT_THE_SECOND_TRY, encoding="utf-8")
    assert 0 == run(tree, ".ci/lane", "one", "test_one.py").returncode
    assert "FLAKY 1: test_one.py::test_flaky\n" == run(tree, ".venv/bin/python", ".ci/flaky", "one").stdout


@pytest.mark.slow
def test_a_test_that_fails_twice_fails_its_lane(tree: Path) -> None:
    """A defect is no flaky test, even beside one."""
    defect = "def test_defect():\n    assert False\n"
    (tree / "test_one.py").write_text(PASSES_AT_THE_SECOND_TRY + defect, encoding="utf-8")
    assert 1 == run(tree, ".ci/lane", "one", "test_one.py").returncode
    assert "FLAKY 1: test_one.py::test_flaky\n" == run(tree, ".venv/bin/python", ".ci/flaky", "one").stdout


@pytest.mark.slow
def test_nothing_is_named_where_all_tests_pass(tree: Path) -> None:
    """A lane forgets the flaky tests of its last run."""
    (tree / "test_one.py").write_text(PASSES_AT_THE_SECOND_TRY, encoding="utf-8")
    for _ in range(2):
        assert 0 == run(tree, ".ci/lane", "one", "test_one.py").returncode
    assert "" == run(tree, ".venv/bin/python", ".ci/flaky", "one").stdout


def test_more_than_five_failures_run_only_once(tree: Path) -> None:
    """So many failures are no accident."""
    tests = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_defect(n):\n    assert False\n"
    (tree / "test_one.py").write_text(tests, encoding="utf-8")
    ended = run(tree, ".ci/lane", "one", "test_one.py")
    assert (1, False) == (ended.returncode, "once more" in ended.stdout)
