"""Packages for a GPU: enabled when CUDA is first used, or when somebody asks."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.core.package import OFF_VARIABLE
from opsmith.dispatch import deferred
from opsmith.dispatch.install import _installed
from opsmith.packaging.kernels import collect

MANIFEST = '{"kernels": {"relu.default": {"entry": "relu.py:kernel", "dsl": "DSL"}}}'


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """What torch would call when CUDA is first used."""
    calls: list[Callable[[], None]] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", calls.append)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.delenv(OFF_VARIABLE, raising=False)
    _installed.packages.clear()
    yield calls
    _installed.packages.clear()


def packaged(folder: Path, dsl: str) -> Path:
    """The folder of a package with one kernel in a language."""
    (folder / "kernels").mkdir()
    (folder / "kernels" / "relu.py").write_text("def kernel(x):\n    return x * 0 + 7\n")
    (folder / "kernels" / "manifest.json").write_text(MANIFEST.replace("DSL", dsl))
    with zipfile.ZipFile(io.BytesIO(collect(folder / "kernels", license="MIT").wheel())) as archive:
        archive.extractall(folder / "site")
    return folder / "site" / "opsmith_kernels_kernels"


def import_torch(package: Path) -> None:
    """Call the package as torch does."""
    scope: dict[str, object] = {"__file__": str(package / "__init__.py"), "__name__": package.name}
    exec((package / "__init__.py").read_text(), scope)
    scope["activate"]()  # type: ignore[operator]


def test_kernels_for_a_gpu_wait_until_cuda_is_used(tmp_path: Path, queued: list[Callable[[], None]]) -> None:
    """Then they are enabled, once."""
    import_torch(packaged(tmp_path, "triton"))
    assert not _installed.packages
    [begin] = queued
    begin()
    assert ["kernels"] == list(_installed.packages)
    before = _installed.choice
    begin()
    assert before is _installed.choice


@pytest.mark.parametrize("ask", [opsmith.active, opsmith.disable], ids=["active", "disable"])
def test_whoever_asks_sees_them(ask: Callable[[], object], tmp_path: Path, queued: list[Callable[[], None]]) -> None:
    """And what is disabled stays so when CUDA is used later."""
    import_torch(packaged(tmp_path, "triton"))
    ask()
    assert ["kernels"] == list(_installed.packages)
    is_enabled = _installed.choice is not None
    assert is_enabled == (ask is opsmith.active)
    queued[0]()
    assert is_enabled == (_installed.choice is not None)


def test_kernels_for_a_cpu_do_not_wait(tmp_path: Path, queued: list[Callable[[], None]]) -> None:
    """Nothing begins on a CPU."""
    import_torch(packaged(tmp_path, "cpp"))
    assert not queued
    assert ["kernels"] == list(_installed.packages)


def test_nor_do_those_that_triton_interprets(
    tmp_path: Path, queued: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run on a CPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    import_torch(packaged(tmp_path, "triton"))
    assert not queued
    assert ["kernels"] == list(_installed.packages)


def test_a_damaged_package_costs_no_program_its_gpu(
    tmp_path: Path, queued: list[Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    """One line says so."""
    package = packaged(tmp_path, "triton")
    (package / "package.json").write_text("{")
    import_torch(package)
    with caplog.at_level(logging.WARNING, logger="opsmith"):
        queued[0]()
    assert ["the kernels of the package kernels are off: "] == [
        one.message.split("DecodeError")[0] for one in caplog.records
    ]
    assert not deferred._waiting


@pytest.mark.slow
def test_waiting_imports_nothing_that_kernels_need(tmp_path: Path) -> None:
    """Every program on the machine pays for what torch's import does."""
    package = packaged(tmp_path, "triton")
    script = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        f"import {package.name} as package\n"
        "package.activate()\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('opsmith')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{package.parent}", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = ["opsmith", "opsmith.dispatch", "opsmith.dispatch.deferred", "opsmith.errors", package.name]
    assert sorted(expected) == eval(done.stdout)
