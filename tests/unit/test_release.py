"""What is released agrees with itself."""

from __future__ import annotations

import re
from pathlib import Path

import opsmith

ROOT = Path(__file__).parents[2]


def test_the_version_stands_in_the_citation() -> None:
    """Whoever cites opsmith cites what was released."""
    assert f"\nversion: {opsmith.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_skill_names_verbs_and_options_that_exist() -> None:
    """An agent does what it says."""
    import typer

    from opsmith.cli.main import app
    from opsmith.cli.verbs import VERBS

    group = typer.main.get_command(app)
    for command in re.findall(r"`opsmith ([a-z]+)([^`]*)`", (ROOT / "SKILL.md").read_text()):
        verb, rest = command
        assert verb in VERBS
        known = {flag for parameter in group.get_command(None, verb).params for flag in parameter.opts}  # type: ignore[attr-defined]
        assert [] == [word for word in re.findall(r"(?<= )--?[a-z][a-z-]*", rest) if word not in known]


def test_the_container_and_the_release_ask_for_the_torch_that_is_tested() -> None:
    """The range of versions stands in pyproject.toml."""
    (torch,) = re.findall(r'"(torch>=[^"]*)"', (ROOT / "pyproject.toml").read_text())
    assert f"'{torch}'" in (ROOT / "Dockerfile").read_text()
