"""Formats of 8 bits and fewer on a GPU: problems are asked, the device's own conversion is right, truncation is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl
from torch.utils._pytree import tree_leaves

from opsmith.aten.low_precision import FORMATS, PACKED, SCALES, dequantized, quantized, same_values
from opsmith.calls.live import rebuild
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall
from opsmith.suites import SuiteCall
from opsmith.suites.modules import Modules
from opsmith.tasks import registry

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
