"""CONTRIBUTING.md names a folder's tests, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "opsmith"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

_ROW = re.compile(r"^\| `([a-z_]+)/` \| (.*) \|$", re.MULTILINE)
_PATH = re.compile(r"`((?:src|tests|docs|benchmarks|examples)/[^`\s]*)`")


def test_every_folder_of_opsmith_has_a_row_in_the_table_of_tests() -> None:
    """Whoever adds a folder says which tests are its own."""
    modules = (path.relative_to(SOURCE).parts for path in SOURCE.rglob("*.py"))
    folders = {folder for folder, *rest in modules if rest}
    rows = dict(_ROW.findall(PAGE))
    assert folders == rows.keys()
    assert [] == [folder for folder, tests in rows.items() if "`tests/" not in tests]


def test_every_path_that_it_names_exists() -> None:
    """A path with a wildcard has to lead to a file at least. `test_mine.py` is the reader's own."""
    named = set(_PATH.findall(PAGE))
    assert len(named) > 30
    assert [] == sorted(path for path in named if not path.endswith("/test_mine.py") and not any(ROOT.glob(path)))
