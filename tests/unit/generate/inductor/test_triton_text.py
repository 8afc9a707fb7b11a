"""Emitted Triton in a file of its own: what it is called with, what comes along, and what that computes."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit.generate.inductor.loading import load

from opsmith.generate.inductor.triton_text import NotPortable, TritonKernel, launch, portable

#: NumPy, which is what Triton's interpreter computes with, warns of infinities that a device just returns.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EMITTED = """
import triton
import triton.language as tl

@triton_heuristics.pointwise(size_hints={{'x': 64}}, filename=__file__)
@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = {expression}
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""


def kernel(expression: str, *, grid: str = "Grid1D") -> TritonKernel:
    """The kernel of one expression of ``tmp0``."""
    tuner = SimpleNamespace(
        configs=[SimpleNamespace(kwargs={"XBLOCK": 64, "RSPLIT": 1}, num_warps=2, num_stages=1)],
        fn=SimpleNamespace(arg_names=["in_ptr0", "out_ptr0", "xnumel", "XBLOCK"]),
        inductor_meta={"grid_type": grid},
    )
    return portable("triton_poi_fused_0", EMITTED.format(expression=expression), tuner)


def run(found: TritonKernel, values: torch.Tensor, folder: Path) -> torch.Tensor:
    """Its text as a file, launched as the text says."""
    names = [ast.Name(name) for name in ("x", "result", "count")]
    call = ast.unparse(launch(found, names))
    lines = [
        "import torch\nimport triton\nimport triton.language as tl",
        *found.helpers,
        found.source,
        f"def run(x):\n    result = torch.empty_like(x)\n    count = x.numel()\n    {call}\n    return result\n",
    ]
    module = load("\n\n\n".join(lines), folder)
    result: torch.Tensor = module.run(values)
    return result


def test_a_launch_has_the_blocks_that_the_tuner_begins_with() -> None:
    """And nothing of the tuner's that the kernel does not take."""
    call = launch(kernel("tmp0"), [ast.Name(name) for name in ("a", "b", "n")])
    expected = "triton_poi_fused_0[triton.cdiv(n, 64),](a, b, n, XBLOCK=64, num_warps=2, num_stages=1)"
    assert expected == ast.unparse(call)


def test_the_text_mentions_nothing_of_the_compiler() -> None:
    """Neither its decorators nor its modules."""
    found = kernel("triton_helpers.maximum(tl_math.abs(tmp0), libdevice.tanh(tmp0))")
    text = "\n".join([*found.helpers, found.source])
    assert not [word for word in ("triton_heuristics", "triton_helpers", "libdevice", "tl_math") if word in text]
    assert "tl.abs(tmp0)" in text


def test_floats_that_the_text_mentions_become_parameters() -> None:
    """They come before the constants, and after what the compiler passes."""
    found = kernel("tmp0 * zf3")
    assert ("zf3",) == found.numbers
    assert "(in_ptr0, out_ptr0, xnumel, zf3, XBLOCK : tl.constexpr):" in found.source
    call = launch(found, [ast.Name(name) for name in ("a", "b", "n")], [ast.Name("alpha")])
    assert "(a, b, n, alpha, XBLOCK=64" in ast.unparse(call)


@pytest.mark.parametrize(
    ("expression", "grid", "what"),
    [("libdevice.lgamma(tmp0)", "Grid1D", "libdevice.lgamma"), ("tmp0", "SplitScanGrid", "a SplitScanGrid")],
)
def test_what_cannot_come_along_is_named(expression: str, grid: str, what: str) -> None:
    """Rather than written into a file that does not load."""
    with pytest.raises(NotPortable, match=what):
        kernel(expression, grid=grid)


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("libdevice.expm1(tmp0)", torch.expm1),
        ("libdevice.log1p(tmp0)", torch.log1p),
        ("libdevice.log10(tmp0)", torch.log10),
        ("libdevice.nearbyint(tmp0)", torch.round),
        ("libdevice.tan(tmp0)", torch.tan),
        ("libdevice.tanh(tmp0)", torch.tanh),
        ("libdevice.trunc(tmp0)", torch.trunc),
        ("libdevice.pow(tmp0, tl.full([1], 3.0, tl.float32))", lambda x: x**3),
        ("libdevice.pow(tmp0, tl.full([1], 0.75, tl.float32))", lambda x: x**0.75),
        ("tl.where(libdevice.isnan(tmp0) | libdevice.isinf(tmp0), 1.0, 0.0)", lambda x: (~x.isfinite()).float()),
    ],
)
def test_what_is_written_out_is_as_exact_as_eager(expression: str, function: Any, tmp_path: Path) -> None:
    """Near zero, where plain formulas lose their digits, and at the ends."""
    small = torch.logspace(-30, 1.5, 200)
    ends = torch.tensor([0.0, 0.5, 1.5, 2.5, 80.0, 100.0, math.inf, math.nan])
    values = torch.cat([small, -small, ends, -ends])
    found = run(kernel(expression), values, tmp_path)
    torch.testing.assert_close(found, function(values), rtol=2e-6, atol=1e-37, equal_nan=True)
