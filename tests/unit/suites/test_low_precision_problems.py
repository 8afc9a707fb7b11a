"""The shipped problems in formats of 8 bits and fewer: each can be asked, honest ways pass and near ones do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.low_precision import PACKED, dequantized, is_low, places
from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall
from opsmith.evaluation.criteria.tolerance import is_within
from opsmith.suites import SuiteCall
from opsmith.suites.modules import Modules
from opsmith.tasks import registry

TASKS = {task: file for task, file in problem_files(SHIPPED_PROBLEMS).items() if task.startswith("low_precision/")}
CPU = torch.device("cpu")
Answer = tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def _problems() -> Iterator[None]:
    registry.use_problems(TASKS, "cpu", small=True)
    yield
    registry.use_problems({}, "cpu")


def cases(task: str) -> dict[str, CallRecord]:
    """The cases of a problem by source and sample; every problem has them, and is not void."""
    suite = Modules()
    suite.compare_by(lambda one, other: is_within(one, other, "strict"))
    found = list(suite.calls(task, "f32", "cpu", 1, lambda _task, _signature: True))
    calls = [call for call in found if isinstance(call, SuiteCall) and call.record is not None]
    assert len(calls) == len(found), found
    return {f"{call.address.source}:{call.address.sample}": call.record for call in calls if call.record is not None}


def judged(task: str, answer: Callable[..., Answer | torch.Tensor], case: str = "inputs:0") -> Finding:
    """What is found of an answer to a case; it is given the inputs."""
    record = cases(task)[case]
    live = rebuild(record, CPU)
    with torch.no_grad():
        expected = [leaf.clone() for leaf in tree_leaves(registry.reference(task)(*live.args, **live.kwargs))]
        got = tree_leaves(answer(*rebuild(record, CPU).args))
    schema = OpSchema(name=task, schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
    call = JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs)
    assert [one.dtype for one in expected] == [one.dtype for one in got]
    return compare(call, [expected], [got], tolerance="strict")


@pytest.mark.parametrize("task", TASKS)
def test_every_problem_is_asked(task: str) -> None:
    """With five draws at least, low precision on one side or both, and other values in variants where it has any."""
    found = cases(task)
    assert {f"inputs:{number}" for number in range(5)} <= set(found)
    live = rebuild(found["inputs:0"], CPU)
    with torch.no_grad():
        results = tree_leaves(registry.reference(task)(*live.args, **live.kwargs))
    assert any(map(is_low, [*tree_leaves(live.args), *results]))


# ---------------------------------------------------------------- quantising


def _by_reciprocal(x: torch.Tensor) -> Answer:
    """Multiplies by 448 over the largest, as most kernels do."""
    largest = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12)
    return (x.float() * (448.0 / largest)).to(torch.float8_e4m3fn), largest / 448.0


def _truncating(x: torch.Tensor) -> Answer:
    numbers, scale = _by_reciprocal(x)
    beyond = dequantized(numbers).abs() * scale > x.float().abs()
    return (numbers.view(torch.uint8) - beyond.to(torch.uint8)).view(torch.float8_e4m3fn), scale


def _with_one_scale(x: torch.Tensor) -> Answer:
    scale = (x.float().abs().amax() / 448.0).expand(x.shape[0], 1).contiguous()
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize(("answer", "passes"), [(_by_reciprocal, True), (_truncating, False), (_with_one_scale, False)])
@pytest.mark.parametrize("case", ["inputs:1", "scaled:0"])
def test_ways_to_quantize(answer: Callable[..., Answer], passes: bool, case: str) -> None:  # noqa: FBT001 - expected
    """Rounding to nearest with another last digit of the scale is right; another rounding or scale is not."""
    assert passes == judged("low_precision/1_TokenQuantize", answer, case).passed


def _to_nearest(x: torch.Tensor) -> Answer:
    """MXFP4 from a table of all sixteen numbers, ties to even codes, and the scale from the bits of the largest."""
    blocks = x.float().view(x.shape[0], -1, 32)
    largest = blocks.abs().amax(-1, keepdim=True) / 6.0
    bits = largest.view(torch.int32)
    exponent = (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).int()
    scaled = torch.ldexp(blocks, -exponent).view(x.shape)
    table = dequantized(torch.arange(8).to(torch.uint8).view(PACKED))[::2]
    distance = (scaled.abs().unsqueeze(-1) - table).abs()
    tie = torch.arange(8) % 2 * 1e-6
    codes = (distance + tie).argmin(-1) + 8 * (scaled < 0)
    codes = codes.to(torch.uint8)
    scale = (exponent + 127).to(torch.uint8).squeeze(-1).view(torch.float8_e8m0fnu)
    return (codes[:, ::2] | codes[:, 1::2] << 4).view(PACKED), scale


def _halves_swapped(x: torch.Tensor) -> Answer:
    numbers, scale = _to_nearest(x)
    codes = numbers.view(torch.uint8)
    return (codes >> 4 | codes << 4).view(PACKED), scale


def _next_scale(x: torch.Tensor) -> Answer:
    """Twice the scale, and numbers that fit it: as accurate on the average, and another answer."""
    numbers, scale = _to_nearest(x * 0.5)
    return numbers, (scale.view(torch.uint8) + 2).view(torch.float8_e8m0fnu)


@pytest.mark.parametrize(("answer", "passes"), [(_to_nearest, True), (_halves_swapped, False), (_next_scale, False)])
def test_ways_to_quantize_to_packed_numbers(answer: Callable[..., Answer], passes: bool) -> None:  # noqa: FBT001
    """The first number of a pair is in the lower half, and a block has one right scale."""
    finding = judged("low_precision/11_MXFP4Quantize", answer)
    assert passes == finding.passed, finding.detail


# ---------------------------------------------------------------- products


def _wide(x: torch.Tensor, scale_x: torch.Tensor, weight: torch.Tensor, scale_weight: torch.Tensor) -> Answer:
    x = x.float() * scale_x.repeat_interleave(128, 1)
    weight = weight.float() * scale_weight.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return x, weight


def _block_by_block(*operands: torch.Tensor) -> torch.Tensor:
    """Adds up the products of blocks, each scaled afterwards: what kernels for 8 bits do."""
    x, scale_x, weight, scale_weight = operands
    total = torch.zeros(x.shape[0], weight.shape[0])
    for number, part in enumerate(torch.arange(x.shape[1]).split(128)):
        scale = scale_x[:, number : number + 1] * scale_weight[:, number].repeat_interleave(128)
        total += (x[:, part].float() @ weight[:, part].float().t()) * scale
    return total.bfloat16()


def _in_bfloat16(*operands: torch.Tensor) -> torch.Tensor:
    x, weight = _wide(*operands)
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=torch.bfloat16)
    for part in torch.arange(x.shape[1]).split(16):
        total += (x[:, part] @ weight[:, part].t()).bfloat16()
    return total


def _without_a_block(*operands: torch.Tensor) -> torch.Tensor:
    x, weight = _wide(*operands)
    return (x[:, :-128] @ weight[:, :-128].t()).bfloat16()


@pytest.mark.parametrize(
    ("answer", "passes"), [(_block_by_block, True), (_in_bfloat16, False), (_without_a_block, False)]
)
def test_ways_to_multiply(answer: Callable[..., torch.Tensor], passes: bool) -> None:  # noqa: FBT001 - expected
    """Scaling after adding up is right, adding up in bfloat16 is not."""
    finding = judged("low_precision/7_BlockScaledProduct", answer)
    assert passes == finding.passed, finding.detail


def test_products_that_cancel_are_judged_by_their_terms() -> None:
    """Eager adds up in one order and a kernel in another: where terms cancel, neither has many right digits."""

    def cancelling(x: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor]:
        half = x.shape[1] // 2
        weight = others[1].clone()
        x = x.clone()
        x.view(torch.uint8)[:, half:] = x.view(torch.uint8)[:, :half] ^ 0x80
        weight.view(torch.uint8)[:, half:] = weight.view(torch.uint8)[:, :half]
        weight.view(torch.uint8)[:, -1] ^= 1
        return [x, torch.full_like(others[0], 0.7), weight, torch.full_like(others[2], 1.3)]

    task = "low_precision/7_BlockScaledProduct"
    inputs = cancelling(*rebuild(cases(task)["inputs:0"], CPU).args)
    with torch.no_grad():
        expected = registry.reference(task)(*inputs)
    schema = OpSchema(name=task, schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
    call = JudgedCall(schema=schema, args=tuple(inputs), kwargs={})
    finding = compare(call, [[expected]], [[_block_by_block(*inputs)]], tolerance="strict")
    assert finding.passed, finding.detail
    noise = expected + 0.05 * expected.abs().mean() * torch.randn(expected.shape).bfloat16()
    assert not compare(call, [[expected]], [[noise]], tolerance="strict").passed


def test_neighbours_are_one_apart() -> None:
    """What the comparisons of all these count."""
    ordered = torch.tensor([-1.125, -1.0, 0.0, 2.0**-9, 2.0**-8]).to(torch.float8_e4m3fn)
    assert [-57, -56, 0, 1, 2] == places(ordered).tolist()
