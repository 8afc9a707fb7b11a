"""Plug-ins are found through entry points, and nobody can replace what is opsmith's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith import plugins
from opsmith.errors import BadInput, UnknownName

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a distribution with the given entry points importable, as pip would."""

    def install_distribution(name: str, entry_points: str) -> None:
        site = tmp_path / name
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(str(site))

    return install_distribution


def test_names_lists_what_installed_packages_offer(install: Install) -> None:
    """Entry points of several packages appear in one sorted list."""
    install("stranger", "[opsmith.kernels]\nzeta = stranger:z\nalpha = stranger:a\n")
    install("other", "[opsmith.kernels]\nmiddle = other:m\n")
    assert ["alpha", "middle", "zeta"] == plugins.names(plugins.KERNELS)


def test_load_imports_the_object_behind_a_name(install: Install) -> None:
    """An entry point's value is module:attribute."""
    install("stranger", "[opsmith.backends]\nmine = pathlib:PurePath\n")
    from pathlib import PurePath

    assert PurePath is plugins.load(plugins.BACKENDS, "mine")


def test_target_does_not_import_the_package(install: Install) -> None:
    """A stranger's package is named, never imported: that happens in workers."""
    install("stranger", "[opsmith.kernels]\nmine = stranger_module.kernels:table\n")
    assert "stranger_module.kernels:table" == plugins.target(plugins.KERNELS, "mine")
    assert "stranger_module" not in sys.modules


def test_an_unknown_name_suggests_the_closest() -> None:
    """A typing mistake gets a suggestion, not a traceback."""
    with pytest.raises(UnknownName, match="no backend named 'inductr'; did you mean inductor"):
        plugins.load(plugins.BACKENDS, "inductr")


def test_a_strangers_package_cannot_replace_the_reference(install: Install) -> None:
    """The name `aten` means opsmith's own reference, whatever else is installed."""
    install("a-stranger", "[opsmith.backends]\naten = stranger:Fake\n")
    assert "opsmith.backends.aten:Aten" == plugins.target(plugins.BACKENDS, "aten")
    assert plugins.is_ours(plugins.BACKENDS, "aten")


def test_a_name_that_two_strangers_claim_is_refused(install: Install) -> None:
    """Guessing between two packages would make the run depend on their order."""
    install("first", "[opsmith.kernels]\nmine = first:table\n")
    install("second", "[opsmith.kernels]\nmine = second:table\n")
    with pytest.raises(BadInput, match="several packages offer the opsmith.kernels 'mine': first, second"):
        plugins.target(plugins.KERNELS, "mine")


def test_a_plug_in_that_does_not_import_is_named_with_its_package(install: Install) -> None:
    """A broken installation names the package to repair."""
    install("broken", "[opsmith.backends]\nmine = module_that_is_missing:Thing\n")
    with pytest.raises(BadInput, match=r"'mine' of package broken does not load: No module named"):
        plugins.load(plugins.BACKENDS, "mine")
