"""The documentation builds as a site."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("mkdocs", reason="needs the extra dev")


@pytest.mark.slow
def test_the_site_builds_with_links_that_lead_somewhere(tmp_path: Path) -> None:
    """Strictly: a page that index.md does not list, a link or an anchor that is not there, is an error."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == built.returncode, built.stderr
    pages = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("index.html")}
    assert {"how-to", "reference", "explanation", "kernels", "adr", "tutorial"} < pages
    outside = [path for path in tmp_path.rglob("*.html") if 'src="http' in path.read_text(encoding="utf-8")]
    assert [] == outside
