"""Looks at kernels on a GPU: kernels over time, registers and spills, lines that wait for the device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opsmith.core.run import Options
from opsmith.generate.eager_profile import eager_profiles
from opsmith.session import Session

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

SOURCE = """import torch
import triton
import triton.language as tl


@triton.jit
def positive(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(o_ptr + i, tl.where(x < 0, 0.0, x), mask=i < n)


def relu__default_kernel_impl(self):
    x = self.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        positive[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024, num_warps=8)
    return out
"""


def test_a_triton_kernel_is_seen_from_all_sides(tmp_path: Path) -> None:
    """In its sandboxed worker: what ran on the device, what was compiled, which line the device was waited for in."""
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE)
    options = Options(suite="smoke", backend="x", device="cuda", dtypes=("f32",), ops=("relu.default",), timing="off")
    with Session(options, tmp_path / "judged") as session:
        kernel = session.kernel_in(file, "relu.default")
        judged = session.judge_kernel("relu.default", kernel)
        assert judged.accepted
        found = session.look("relu.default", kernel, judged, most_s=60.0)
        largest = max(session.calls("relu.default"), key=lambda call: sum(map(len, map(repr, call.args))))
    assert not found.problem
    [compiled] = found.compiled
    assert ("positive", 8) == (compiled.name, compiled.warps)
    assert 0 < compiled.registers <= 255
    assert found.lines is not None
    assert {14, 15, 16, 17, 18} <= set(found.lines.us)
    assert found.profile is not None, "torch's profiler sees no kernel in a sandboxed worker"
    assert "positive" in [span.name for span in found.profile.spans]
    eager = eager_profiles({"relu.default": largest}, "cuda")["relu.default"].timeline
    assert 1 <= len(eager.spans) <= 2


def test_a_map_is_made_where_the_results_lie(tmp_path: Path) -> None:
    """On the device, as the comparison."""
    file = tmp_path / "kernel.py"
    file.write_text(SOURCE.replace("mask=i < n)\n\n", "mask=i < n - 1)\n\n"))
    options = Options(suite="smoke", backend="x", device="cuda", dtypes=("f32",), ops=("relu.default",), timing="off")
    with Session(options, tmp_path / "judged") as session:
        kernel = session.kernel_in(file, "relu.default")
        judged = session.judge_kernel("relu.default", kernel)
        assert not judged.accepted
        found = session.look("relu.default", kernel, judged, most_s=60.0)
    assert found.errors is not None
    assert [len(found.errors.wrong) - 1] == [place for place, share in enumerate(found.errors.wrong) if share]
