"""What a GPU's fast functions lose is within what a half type promises, and a constant of too few digits is not."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from tests.evaluation_calls import judge

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

aten = torch.ops.aten


@triton.jit  # type: ignore[untyped-decorator]
def _activation(
    x_ptr: tl.tensor, out_ptr: tl.tensor, count: tl.tensor, which: tl.constexpr, block: tl.constexpr
) -> None:
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + offsets, mask=offsets < count).to(tl.float32)
    if which == "tanh":
        y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    elif which == "gelu":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        t = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=tl.float32, is_pure=True, pack=1
        )
        y = 0.5 * x * (1 + t)
    elif which == "silu":
        y = x / (1 + tl.exp(-x))
    else:
        y = tl.log(x) / 2.3
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=offsets < count)


def _all_values(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(1 << 15), 1 << 15, device="cuda").to(torch.int16).view(dtype)


def _answer(x: torch.Tensor, which: str) -> torch.Tensor:
    out = torch.empty_like(x)
    _activation[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), which=which, block=1024)
    return out


@pytest.mark.parametrize(("which", "op"), [("tanh", aten.tanh.default), ("silu", aten.silu.default)])
def test_fast_functions_do_not_lean(which: str, op: torch._ops.OpOverload) -> None:
    """They are off by 2^-11 to either side, an eighth of a step of bfloat16."""
    x = _all_values(torch.bfloat16)
    assert judge(op, (x,), _answer(x, which)).passed


def test_gelu_of_a_fast_tanh_does_not_lean() -> None:
    """Above -2.5: below, one is nearly taken away from one, and what is left has few digits."""
    x = _all_values(torch.bfloat16)
    x = x[(x > -2.5) & x.isfinite()]
    assert judge(aten.gelu.default, (x,), _answer(x, "gelu"), approximate="tanh").passed


def test_a_constant_of_two_digits_leans() -> None:
    """On a GPU as on a CPU."""
    x = _all_values(torch.bfloat16)
    x = x[(x >= torch.finfo(x.dtype).tiny) & x.isfinite()]
    found = judge(aten.log10.default, (x,), _answer(x, "log10"))
    assert not found.passed
    assert "lean" in found.detail
