"""In Triton's interpreter numbers of bfloat16 are what they are on a GPU."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from opsmith.runner import bare
from opsmith.runner.child import interpreted_bfloat16
from opsmith.runner.child.interpreted_bfloat16 import mend_bfloat16

BUILDER = interpreter.InterpreterBuilder
MENDED = ("cast_impl", "create_fp_to_fp", "binary_op", "create_dot")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _mended(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MENDED:
        monkeypatch.setattr(BUILDER, name, inspect.unwrap(getattr(BUILDER, name)))
    monkeypatch.setattr(interpreter.ReduceOps, "sum", inspect.unwrap(interpreter.ReduceOps.sum))
    mend_bfloat16()


@triton.jit  # type: ignore[untyped-decorator]
def cast_kernel(x_ptr: tl.tensor, y_ptr: tl.tensor, n: int, block: tl.constexpr) -> None:
    """Load, cast and store."""
    i = tl.arange(0, block)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n).to(y_ptr.dtype.element_ty), mask=i < n)


@triton.jit  # type: ignore[untyped-decorator]
def combined_kernel(
    x_ptr: tl.tensor,
    z_ptr: tl.tensor,
    sum_ptr: tl.tensor,
    less_ptr: tl.tensor,
    equal_ptr: tl.tensor,
    block: tl.constexpr,
) -> None:
    """A sum and two comparisons in the type of the arguments."""
    i = tl.arange(0, block)
    x = tl.load(x_ptr + i)
    z = tl.load(z_ptr + i)
    tl.store(sum_ptr + i, x + z)
    tl.store(less_ptr + i, x < z)
    tl.store(equal_ptr + i, x == z)


@triton.jit  # type: ignore[untyped-decorator]
def dot_kernel(a_ptr: tl.tensor, b_ptr: tl.tensor, c_ptr: tl.tensor, size: tl.constexpr) -> None:
    """A product of two matrices."""
    i = tl.arange(0, size)
    place = i[:, None] * size + i[None, :]
    tl.store(c_ptr + place, tl.dot(tl.load(a_ptr + place), tl.load(b_ptr + place)))


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in another type, by a kernel."""
    y = torch.empty(x.shape, dtype=dtype)
    cast_kernel[(1,)](x, y, x.numel(), block=triton.next_power_of_2(x.numel()))
    return y


def every_bfloat16() -> torch.Tensor:
    """All 65,536 of them."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def test_all_numbers_are_widened_exactly() -> None:
    """Those below the smallest normal one, infinities and NaN among them."""
    x = every_bfloat16()
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(torch.nan_to_num(cast(x, dtype), nan=7.0), torch.nan_to_num(x.to(dtype), nan=7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_numbers_are_narrowed_to_the_nearest(dtype: torch.dtype) -> None:
    """The even one of two as near; it cut them off, and a mask became a number next to zero."""
    torch.manual_seed(3)
    x = torch.randn(4096) * 100
    if dtype == torch.float32:
        ties = (every_bfloat16().view(torch.int16).to(torch.int32) << 16) | 0x8000
        x = torch.cat([x, torch.tensor([1e-40, 3.4e38, float("inf"), float("-inf")]), ties.view(torch.float32)])
    x = x.to(dtype)
    expected, actual = x.to(torch.bfloat16), cast(x, torch.bfloat16)
    assert torch.equal(torch.isnan(expected), torch.isnan(actual))
    assert torch.equal(torch.nan_to_num(expected, nan=7.0), torch.nan_to_num(actual, nan=7.0))


def test_numbers_are_combined_and_compared() -> None:
    """It added the integers, and a NaN was equal to itself."""
    torch.manual_seed(4)
    x, z = torch.randn(2, 1024).bfloat16()
    x[:2] = z[:2] = torch.tensor([float("nan"), -0.5])
    added, less, equal = torch.empty_like(x), *(torch.empty(1024, dtype=torch.bool) for _ in range(2))
    combined_kernel[(1,)](x, z, added, less, equal, block=1024)
    assert torch.equal(torch.nan_to_num(added), torch.nan_to_num(x + z))
    assert torch.equal(less, x < z)
    assert torch.equal(equal, x == z)


def test_products_of_matrices_are_added_in_float32() -> None:
    """It multiplied the integers: every honest product in bfloat16 was wrong by nine orders of magnitude."""
    torch.manual_seed(5)
    a, b = torch.randn(2, 32, 32).bfloat16()
    c = torch.empty(32, 32)
    dot_kernel[(1,)](a, b, c, size=32)
    torch.testing.assert_close(c, a.float() @ b.float())


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel(x_ptr: tl.tensor, rows_ptr: tl.tensor, all_ptr: tl.tensor, size: tl.constexpr) -> None:
    """Sums of rows, and of everything."""
    i = tl.arange(0, size)
    x = tl.load(x_ptr + i[:, None] * size + i[None, :])
    tl.store(rows_ptr + i, tl.sum(x, axis=1))
    tl.store(all_ptr, tl.sum(tl.load(x_ptr + i), axis=0))


def test_numbers_are_added_up() -> None:
    """It added the integers."""
    x = torch.randint(-8, 9, (16, 16)).bfloat16()
    rows, all_ = torch.empty(16, dtype=torch.bfloat16), torch.empty((), dtype=torch.bfloat16)
    sum_kernel[(1,)](x, rows, all_, size=16)
    assert torch.equal(rows, x.sum(1))
    assert torch.equal(all_, x[0].sum())


def test_it_is_mended_once() -> None:
    """A process may begin with one in which it was."""
    before = [getattr(BUILDER, name) for name in MENDED]
    mend_bfloat16()
    assert before == [getattr(BUILDER, name) for name in MENDED]


def test_the_bare_program_computes_as_workers_do() -> None:
    """Else a kernel would be right only where it is judged. What the bare program repeats is the same text."""
    repeated = {"bfloat16_conversions", "mend_bfloat16"}
    texts = []
    for path in (Path(interpreted_bfloat16.__file__), Path(bare.__file__).parent / "program.py"):
        tree = ast.parse(path.read_bytes())
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in repeated]
        texts.append([ast.dump(ast.Module(node.body[1:], [])) for node in functions])
    assert len(texts[0]) == len(repeated)
    assert texts[0] == texts[1]
