"""Metal that clang reads where no Mac is."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from opsmith.errors import MissingDependency
from opsmith.generate import metal_syntax

KERNEL = '''
import torch

SOURCE = r"""
#include <c10/metal/reduction_utils.h>
#include <c10/metal/error.h>

[[max_total_threads_per_threadgroup(1024)]]
kernel void scaled(
    device float* out,
    constant float* in,
    constant bfloat* halves,
    constant long& count,
    device c10::metal::ErrorMessages* error_buf,
    uint2 at [[thread_position_in_grid]]
) {
    threadgroup float3 sums[32];
    sums[at.y] = c10::metal::welford_combine(sums[at.y], float3(in[at.x], 0.0, 1.0));
    if (at.x >= count) TORCH_REPORT_ERROR(error_buf, "row ", at.x);
    float most = ::c10::metal::MaxOp<float>::identity();
    auto mean = c10::metal::threadgroup_welford_combine(sums, metal::min(static_cast<long>(32), count));
    out[at.x] = metal::precise::rsqrt(mean.y) * static_cast<float>(halves[at.x]) + most;
}
"""
'''
needs_clang = pytest.mark.skipif(importlib.util.find_spec("clang") is None, reason="needs opsmith[metal]")


@needs_clang
def test_right_metal_has_no_errors() -> None:
    """Of the kind that the compiler writes: vectors, threadgroup memory, headers of torch, errors."""
    assert () == metal_syntax.errors(KERNEL)
    assert "clang finds no error in its text" == metal_syntax.verdict(KERNEL)


@needs_clang
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("float most", "float most(", "expected"),
        ("+ most;", "+ least;", "undeclared identifier 'least'"),
        ("device float* out,", "constant float* out,", "not assignable"),
        ("metal::precise::rsqrt", "metal::precise::rsqroot", "no member named 'rsqroot'"),
        ("c10::metal::welford_combine", "c10::metal::welford_merge", "no member named 'welford_merge'"),
        ("(sums, metal", "(in, metal", "member reference"),
        ("    out[at.x]", "    threadgroup float* p = out; out[at.x]", "'threadgroup float *"),
        ("uint2 at", "uint2 here", "undeclared identifier 'at'"),
        ("mean.y", "mean.w", "no member named 'w'"),
    ],
)
def test_a_fault_is_found(old: str, new: str, said: str) -> None:
    """With its line in the text."""
    assert old in KERNEL
    found = metal_syntax.errors(KERNEL.replace(old, new))
    assert found
    assert any(said in line for line in found), found
    line = int(found[0].split()[1].rstrip(":"))
    shown = KERNEL.replace(old, new).partition('r"""')[2].splitlines()
    assert 0 < line <= len(shown)


@needs_clang
def test_a_file_without_a_kernel_says_so() -> None:
    """A model may write something else than Metal."""
    assert "no string of the file defines a kernel" == metal_syntax.verdict("def relu__default_kernel_impl(x): ...")


def test_without_clang_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "clang", None)
    assert metal_syntax.verdict(KERNEL) is None
    with pytest.raises(MissingDependency, match=r"opsmith\[metal\]"):
        metal_syntax.errors(KERNEL)


def test_functions_are_those_of_the_torch_that_is_here() -> None:
    """Read out of its headers, which a call has to find on a Mac too."""
    functions, reductions = metal_syntax._of_torch()
    assert {"threadgroup_sum", "welford_combine", "erf", "floor_divide"} <= set(functions)
    assert {"MaxOp", "MinOp"} <= set(reductions)
    assert not {"for", "if"} & set(functions)
