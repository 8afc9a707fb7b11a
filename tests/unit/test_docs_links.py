"""The documentation holds together: links lead somewhere and every page can be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/results/**/README.md")])

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$", re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its code blocks, in which brackets mean something else."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """The link targets of a page that are not on the web."""
    for target in _LINK.findall(_CODE.sub("", prose(page))):
        if not target.startswith(("https://", "http://")):
            yield target


def anchors(page: Path) -> set[str]:
    """The fragments of a page: its headings in lower case, spaces as hyphens, punctuation gone."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose(page))}


def test_the_pages_are_found() -> None:
    """The tests below ask about the real documentation, not about an empty list."""
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "index.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """A link names an existing file, and a fragment names one of its headings."""
    dead = []
    for target in links(page):
        path, _, fragment = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (fragment and fragment not in anchors(linked)):
            dead.append(target)
    assert [] == dead


def test_every_page_of_the_documentation_can_be_reached_from_its_index() -> None:
    """Whoever starts at docs/index.md finds everything."""
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        waiting.extend((page.parent / target.partition("#")[0]).resolve() for target in links(page))
    assert [] == [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in reached]
