"""The glossary is short, and about words that readers meet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "glossary.md"
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[1:]
TEXT = "\n".join(
    path.read_text(encoding="utf-8")
    for folder, pattern in (("docs", "*.md"), ("src", "*.py"))
    for path in sorted((ROOT / folder).rglob(pattern))
    if path != PAGE
)


def test_the_glossary_has_at_most_forty_terms() -> None:
    """A longer list is one that nobody reads; and no term is explained twice."""
    terms = [term for term, _ in ROWS]
    assert 30 <= len(terms) <= 40
    assert len(terms) == len(set(terms))


@pytest.mark.parametrize("term", [term for term, _ in ROWS])
def test_a_defined_term_is_used(term: str) -> None:
    """A term that no page and no source uses needs no definition."""
    words = r"\s+".join(map(re.escape, term.split()))
    assert re.search(rf"\b{words}s?\b", TEXT, re.IGNORECASE), term


@pytest.mark.parametrize(("term", "meaning"), ROWS)
def test_a_definition_is_one_or_two_sentences(term: str, meaning: str) -> None:
    """More belongs on a page of its own."""
    assert 1 <= len(re.findall(r"\.(?= |$)", meaning)) <= 2, term
