"""What opsmith promises to people who import or extend it."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

import opsmith
from opsmith.backends import Backend
from opsmith.suites import AsksWholeModels, Suite

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY_POINTS = PYPROJECT["project"]["entry-points"]


def load(target: str) -> type:
    """Import what an entry point names, as ``module:attribute``."""
    module, _, attribute = target.partition(":")
    loaded: type = getattr(importlib.import_module(module), attribute)
    return loaded


def test_the_public_names_are_these() -> None:
    """A name that is added or lost is a decision, made here."""
    names = ["OpsmithError", "__version__", "active", "disable", "disabled", "enable", "enabled"]
    assert names == sorted(opsmith.__all__)


def test_dir_lists_what_is_public() -> None:
    """Whoever explores in an interpreter finds ``enable`` there, though it is imported when it is first used."""
    assert sorted(opsmith.__all__) == dir(opsmith)


def test_every_public_name_exists() -> None:
    """``__all__`` lists nothing that cannot be imported."""
    assert [] == [name for name in opsmith.__all__ if not hasattr(opsmith, name)]


@pytest.mark.parametrize(
    "target", [*ENTRY_POINTS["opsmith.backends"].values(), *ENTRY_POINTS["opsmith.suites"].values()]
)
def test_what_an_entry_point_names_can_be_imported(target: str) -> None:
    """Importing needs no optional package: an adapter misses its package when it is used."""
    assert isinstance(load(target), type)


@pytest.mark.parametrize("name", ["aten", "inductor", "opsmith"])
def test_a_built_in_backend_calls_itself_as_it_is_registered(name: str) -> None:
    """The name in the records is the name on the command line."""
    backend = load(ENTRY_POINTS["opsmith.backends"][name])()
    assert isinstance(backend, Backend)
    assert name == backend.name


@pytest.mark.parametrize(("name", "target"), ENTRY_POINTS["opsmith.suites"].items())
def test_a_built_in_suite_calls_itself_as_it_is_registered(name: str, target: str) -> None:
    """The name in the records is the name on the command line."""
    suite = load(target)()
    assert isinstance(suite, Suite | AsksWholeModels)
    assert name == suite.name


def test_only_the_reference_is_trusted() -> None:
    """Everything but ``aten`` is a stranger's code, the kernels that ship with opsmith included."""
    names = ("aten", "inductor", "opsmith")
    assert ["aten"] == [name for name in names if load(ENTRY_POINTS["opsmith.backends"][name])().trusted]
