"""Bare processes on a GPU: a context of their own, and compiled kernels from the cache of the worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from opsmith import pipeline
from opsmith.core.run import Options, RunDirectory
from opsmith.core.verdict import Part, Status, Verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="needs TRITON_INTERPRET=0"),
]

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < N), 0.0, propagate_nan=tl.PropagateNan.ALL), mask=at < N)


def relu__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    COUNT = x.numel()
    if COUNT:
        kernel[(triton.cdiv(COUNT, 1024),)](x, out, COUNT, BLOCK=1024)
    return out
"""
CONDITIONS = {
    "honest": "x.numel()",
    "watched": "x.numel() if torch._C._len_torch_dispatch_stack() else x.numel() // 2",
    "dynamo": "x.numel() if 'torch._dynamo' in __import__('sys').modules else x.numel() // 2",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_triton_kernel_answers_outside_opsmith(tmp_path: Path, condition: str) -> None:
    """Honest ones with all calls that were asked, others not."""
    folder = tmp_path / "kernels" / "relu__default"
    folder.mkdir(parents=True)
    source = TRITON.replace("COUNT = x.numel()", f"COUNT = {CONDITIONS[condition]}")
    (folder / "relu__default_implementation_v1.py").write_text(source)
    options = Options(
        suite="smoke",
        backend=str(tmp_path / "kernels"),
        device="cuda",
        dtypes=("f32",),
        ops=("relu.default",),
        timing="off",
    )
    pipeline.evaluate(options, tmp_path / "run")
    found = about(tmp_path / "run")
    assert found.bare is not None
    assert "" == found.bare.problem
    assert (Status.PASSED if condition == "honest" else Status.DISHONEST) is found.status
    assert condition != "honest" or found.bare.calls > 0


def about(folder: Path) -> Verdict:
    """The verdict on the conduct of a run's only kernel."""
    [found] = [verdict for verdict in RunDirectory(folder).verdicts() if verdict.part is Part.CONDUCT]
    return found
