"""Call a shipped kernel and eager with the same arguments and compare everything a caller can see."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import opsmith.kernels

FOLDER = Path(opsmith.kernels.__file__).parent
MANIFEST: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text())["kernels"]
HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64, *HALF)


def kernel(op: str) -> Callable[..., Any]:
    """The shipped kernel of an overload."""
    file, _, function = MANIFEST[op]["entry"].partition(":")
    return getattr(module_of(file), function)  # type: ignore[no-any-return]


def module_of(file: str) -> ModuleType:
    """The module of a file of the folder, by its path in it."""
    return importlib.import_module(f"opsmith.kernels.{file.removesuffix('.py').replace('/', '.')}")


def files_of_kernels() -> list[str]:
    """Every file of the folder, by its path in it."""
    paths = (path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.py") if path.name != "__init__.py")
    return sorted(paths)


def ops_of(file: str) -> list[str]:
    """The overloads that a file of the folder answers."""
    found = [op for op, entry in MANIFEST.items() if entry["entry"].partition(":")[0] == file]
    assert found
    return found


def eager(op: str) -> Callable[..., Any]:
    """The overload itself."""
    packet, _, overload = op.rpartition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)  # type: ignore[no-any-return]


def assert_as_eager(op: str, *args: Any, **kwargs: Any) -> None:
    """Compare values at torch's own tolerances, dtypes, shapes and strides."""
    expected = eager(op)(*args, **kwargs)
    with np.errstate(all="ignore"):  # Triton's interpreter computes with numpy, which warns of infinities.
        actual = kernel(op)(*args, **kwargs)
    assert isinstance(expected, tuple) == isinstance(actual, tuple)
    if not isinstance(expected, tuple):
        expected, actual = (expected,), (actual,)
    for eagers, ours in zip(expected, actual, strict=True):
        assert eagers.stride() == ours.stride()
        torch.testing.assert_close(ours, eagers, equal_nan=True)


def small_tiles(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    """Let kernels read in pieces of so many elements what the interpreter would take at once."""
    modules = [module for module in map(module_of, files_of_kernels()) if hasattr(module, "INTERPRETED_TILE")]
    assert modules
    for module in modules:
        monkeypatch.setattr(module, "INTERPRETED_TILE", elements)


def tiles_of_a_device(monkeypatch: pytest.MonkeyPatch, multiprocessors: int = 4) -> None:
    """Let kernels cut their work as for a device of so many multiprocessors: into more programs, rows into splits."""
    for module in modules_with("INTERPRETED"):
        if hasattr(module, "multiprocessors"):
            monkeypatch.setattr(module, "INTERPRETED", False)
            monkeypatch.setattr(module, "multiprocessors", lambda _device: multiprocessors)


def modules_with(name: str) -> list[ModuleType]:
    """The files of kernels, all imported, in which something has that name."""
    files = {entry["entry"].partition(":")[0] for entry in MANIFEST.values()}
    imported = map(module_of, sorted(files | {"common/elementwise.py", "common/matrix.py", "norms/standardization.py"}))
    found = [module for module in imported if hasattr(module, name)]
    assert found
    return found


def values(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 3.0) -> torch.Tensor:
    """Reproducible values of both signs."""
    generator = torch.Generator().manual_seed(hash(shape) % 1000)
    raw = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    return raw > 0 if dtype == torch.bool else raw.abs().to(dtype) if dtype == torch.uint8 else raw.to(dtype)


def layouts(*shape: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """The same shape in every kind of memory layout."""
    wide = values(*shape[:-1], 2 * shape[-1], dtype=dtype)
    return {
        "row-major": values(*shape, dtype=dtype),
        "transposed": values(*shape[::-1], dtype=dtype).permute(*reversed(range(len(shape)))),
        "every other element": wide[..., ::2],
        "offset": wide[..., shape[-1] :],
        "expanded": values(1, *shape[1:], dtype=dtype).expand(shape),
    }


SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 88.7, 89.0, -87.5, -110.0, 3e38])
