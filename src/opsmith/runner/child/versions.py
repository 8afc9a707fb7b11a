"""Versions of the packages that kernels run on, read in a process that has them imported."""

from __future__ import annotations

import contextlib

import torch


def versions() -> dict[str, str | None]:
    """Of torch, of the CUDA that it was built with, and of Triton; None without one."""
    found = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "triton": None}
    with contextlib.suppress(ImportError):
        import triton

        found["triton"] = triton.__version__
    return found
