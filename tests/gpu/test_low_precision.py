"""Formats of 8 bits and fewer on a GPU: problems are asked, conversions and the shipped kernels are right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import FORMATS, PACKED, SCALES, dequantized, is_low, quantized, same_values
from opsmith.backends import manifest
from opsmith.calls.live import rebuild
from opsmith.core.kernel import SHIPPED_KERNELS
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall
from opsmith.evaluation.criteria.steps import steps_off
from opsmith.prewarm.compiling import kernel_function
from opsmith.suites import SuiteCall
from opsmith.suites.modules import Modules
from opsmith.tasks import registry
from opsmith.tasks.problem_module import import_problem

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

TASKS = {task: file for task, file in problem_files(SHIPPED_PROBLEMS).items() if task.startswith("low_precision/")}
CUDA = torch.device("cuda")
FLOATS = [dtype for dtype in FORMATS if dtype not in (PACKED, SCALES)]


@pytest.fixture(autouse=True)
def _problems() -> Iterator[None]:
    registry.use_problems(TASKS, "cuda", small=True)
    yield
    registry.use_problems({}, "cpu")


@triton.jit  # type: ignore[untyped-decorator]
def _quantize(
    x_ptr: tl.tensor,
    out_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    width: tl.tensor,
    block: tl.constexpr,
    towards: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-12) / 448.0
    y = x * (1.0 / scale)
    if towards == "zero":
        y = (y.to(tl.int32, bitcast=True) & -1048576).to(tl.float32, bitcast=True)
    tl.store(out_ptr + row * width + columns, y.to(tl.float8e4nv), mask=columns < width)
    tl.store(scale_ptr + row, scale)


def _judged(towards: str) -> Finding:
    task = "low_precision/1_TokenQuantize"
    call = next(Modules().calls(task, "f32", "cuda", 1, lambda _task, _signature: True))
    assert isinstance(call, SuiteCall)
    assert call.record is not None
    live = rebuild(call.record, CUDA)
    with torch.no_grad():
        expected = tree_leaves(registry.reference(task)(*live.args, **live.kwargs))
    (x,) = live.args
    out, scale = torch.empty_like(x, dtype=torch.float8_e4m3fn), torch.empty(x.shape[0], 1, device=CUDA)
    _quantize[(x.shape[0],)](x, out, scale, x.shape[1], block=triton.next_power_of_2(x.shape[1]), towards=towards)
    schema = OpSchema(name=task, schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
    judged = JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs)
    return compare(judged, [expected], [[out, scale]], tolerance="strict")


@pytest.mark.parametrize("task", TASKS)
def test_every_problem_is_asked_on_a_gpu(task: str) -> None:
    """Its Model answers there, and is not void."""
    suite = Modules()
    found = list(suite.calls(task, "f32", "cuda", 1, lambda _task, _signature: True))
    assert all(isinstance(call, SuiteCall) for call in found), found
    assert 5 <= len(found)


def test_the_devices_own_conversion_is_right() -> None:
    """It rounds to nearest, ties to even, as eager does."""
    finding = _judged("nearest")
    assert finding.passed, finding.detail


def test_truncation_is_not() -> None:
    """Half of all elements are a step off."""
    assert not _judged("zero").passed


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gpu_and_a_cpu_round_alike(dtype: torch.dtype) -> None:
    """Beyond the range as well: conversions of torch saturate on one device and not on the other."""
    x = torch.cat([torch.randn(4096, generator=torch.Generator().manual_seed(0)), torch.tensor([1e9, -1e9])])
    here, there = quantized(x, dtype), quantized(x.cuda(), dtype)
    assert same_values(here, there.cpu())
    assert torch.equal(dequantized(here), dequantized(there).cpu())


# ---------------------------------------------------------------- the shipped kernels

MODULES = manifest.read(SHIPPED_KERNELS).modules
#: Numbers that sums, an exponential or a root come before, whose last digits are each device's own.
AFTER_SUMS = {"low_precision/15_NormQuantize": 2.0**-12, "low_precision/16_SwiGLUQuantize": 2.0**-12}
E4M3 = torch.float8_e4m3fn


def _results(
    task: str, *, small: bool = True, given: list[torch.Tensor] | None = None
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Of a problem's Model and of the class that the manifest names, at small or full sizes, or of given inputs."""
    problem = import_problem(TASKS[task])
    if small:
        vars(problem).update(problem.SMALL)
    torch.manual_seed(1)
    init = problem.get_init_inputs()
    model = problem.Model(*init).cuda()
    drawn = problem.get_inputs() if given is None else given
    inputs = tree_map(lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf, drawn)
    entry = MODULES[task].entry
    assert entry is not None
    ours: Any = kernel_function(entry)(*init)
    ours.load_state_dict(model.state_dict())
    with torch.no_grad():
        return tree_leaves(model(*inputs)), tree_leaves(ours.cuda()(*inputs))


@pytest.mark.parametrize("small", [True, False], ids=["small", "full"])
@pytest.mark.parametrize("task", TASKS)
def test_a_shipped_kernel_has_its_models_results(task: str, *, small: bool) -> None:
    """Numbers of 8 bits and fewer one by one, scales bit for bit; products to the digits of bfloat16."""
    for expected, got in zip(*_results(task, small=small), strict=True):
        assert (expected.dtype, expected.shape, expected.stride()) == (got.dtype, got.shape, got.stride())
        if is_low(expected):
            off = int(torch.count_nonzero(steps_off(expected, got)))
            assert off <= AFTER_SUMS.get(task, 0.0) * expected.numel()
        elif expected.dtype == torch.float32 and task not in AFTER_SUMS:
            assert torch.equal(expected, got)
        else:
            largest = expected.float().abs().max().item()
            torch.testing.assert_close(got, expected, rtol=2.0**-7, atol=2.0**-8 * largest)


@pytest.mark.parametrize(
    "task", ["1_TokenQuantize", "2_GroupQuantize", "9_MXFP8Quantize", "11_MXFP4Quantize", "13_NVFP4Quantize"]
)
def test_special_numbers_are_quantised_as_eager_does(task: str) -> None:
    """Compiled code takes other instructions than the interpreter: for quotients, conversions and largest numbers.

    An infinity among blocks whose scale is a power of two is left out: a conversion to an integer has no answer.
    """
    x = torch.randn(12, 512).bfloat16()
    x[0], x[1], x[2], x[3, 130], x[4] = 0.0, 1e-30, -0.375, float("nan"), 3e38
    if "MX" not in task:
        x[5, 1], x[6, 300] = float("inf"), -float("inf")
    for rows in (x, x[:3], x[4:5], x[7:]):
        for expected, got in zip(*_results(f"low_precision/{task}", given=[rows]), strict=True):
            if is_low(expected):
                assert 0 == torch.count_nonzero(steps_off(expected, got))
            else:
                torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("rows", [16, 48, 200, 1024])
@pytest.mark.parametrize("rows_apart", [False, True])
def test_scaled_mm_is_eagers(rows: int, *, rows_apart: bool) -> None:
    """With cuBLAS behind it; few rows, whose tiles are too small for warp groups, and many; with a bias."""
    x, weight = torch.randn(rows, 512).cuda().to(E4M3), torch.randn(768, 512).cuda().to(E4M3)
    scales = torch.tensor(0.7, device=CUDA), torch.tensor(1.3, device=CUDA)
    if rows_apart:
        scales = torch.rand(rows, 1, device=CUDA) + 0.5, torch.rand(1, 768, device=CUDA) + 0.5
    bias = torch.randn(768).cuda().bfloat16()
    given = {"bias": bias, "out_dtype": torch.bfloat16}
    got = kernel_function("low_precision/scaled_products.py:scaled_mm")(x, weight.t(), *scales, **given)
    right = torch.ops.aten._scaled_mm(x, weight.t(), *scales, **given)
    torch.testing.assert_close(got, right, rtol=2.0**-7, atol=0.25)
    exact = (x.double() @ weight.double().t()) * scales[0].double() * scales[1].double() + bias.double()
    assert (got.double() - exact).abs().max() <= 1.5 * (right.double() - exact).abs().max()


def test_rows_in_groups_are_eagers() -> None:
    """With CUTLASS behind it; one group is empty, and rows behind the last one are nobody's."""
    a, b = torch.randn(700, 256).cuda().to(E4M3), torch.randn(4, 384, 256).cuda().to(E4M3)
    scale_a, scale_b = torch.rand(700, device=CUDA) + 0.5, torch.rand(4, 384, device=CUDA) + 0.5
    ends = torch.tensor([128, 128, 512, 640], dtype=torch.int32, device=CUDA)
    args = a, b.mT, scale_a, scale_b, ends
    got = kernel_function("low_precision/grouped_products.py:scaled_grouped_mm")(*args, out_dtype=torch.bfloat16)
    right = torch.ops.aten._scaled_grouped_mm(*args, out_dtype=torch.bfloat16)
    torch.testing.assert_close(got[:640], right[:640], rtol=2.0**-7, atol=0.25)
