"""What is released agrees with itself."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

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


def test_the_release_adds_addresses_to_the_metadata() -> None:
    """Those of the repository that the tag is pushed to; what is appended has to stay TOML."""
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    appended = textwrap.dedent(workflow.partition("<<END\n")[2].partition("          END\n")[0])
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text() + appended)
    assert {"Repository", "Documentation", "Changelog", "Issues"} == metadata["project"]["urls"].keys()


def test_every_dependency_of_development_is_pinned() -> None:
    """To a version that pyproject.toml allows; `make lock` pins them anew. No line says where a package lies."""
    text = (ROOT / "requirements-dev.lock").read_text()
    assert "://" not in text
    pins = [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
    versions: dict[str, list[str]] = {}
    for pin in pins:
        (pinned,) = pin.specifier
        assert "==" == pinned.operator
        versions.setdefault(pin.name, []).append(pinned.version)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [
        Requirement(line) for line in (*project["dependencies"], *extras["dev"], *extras["mcp"], *extras["serve"])
    ]
    for each in needed:
        if each.name != "opsmith":
            name = each.name.lower().replace("_", "-")
            assert any(each.specifier.contains(version) for version in versions.get(name, ())), each
