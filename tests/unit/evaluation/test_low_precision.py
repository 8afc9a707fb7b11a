"""Formats of 8 bits and fewer: what their bits mean, how results in them are compared, and what the oracle says."""

from __future__ import annotations

import msgspec
import pytest
import torch
from tests.evaluation_calls import call_of, judge

from opsmith.aten.low_precision import FORMATS, PACKED, SCALES, dequantized, quantized, same_values
from opsmith.calls.live import CALL_DECODER, rebuild
from opsmith.calls.synthetic import generate
from opsmith.core.call_text import describe
from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue
from opsmith.core.domains import Normal
from opsmith.core.dtypes import LOW_PRECISION, TENSOR_SHORT_NAMES
from opsmith.evaluation.comparisons import low_precision
from opsmith.evaluation.criteria.judged_call import Finding
from opsmith.evaluation.criteria.tolerance import is_within, tolerance_for
from opsmith.suites.modules import variants
from opsmith.suites.valid_inputs.fitting import fitted
from opsmith.tasks.module_state import perturbed
from opsmith.tasks.problem import record_call
from opsmith.traces.grammar import parse_call

aten = torch.ops.aten
FLOATS = [dtype for dtype in FORMATS if dtype not in (PACKED, SCALES)]
LIMITS = {dtype: tolerance_for("strict", dtype) for dtype in FORMATS}


def every_byte(dtype: torch.dtype) -> torch.Tensor:
    """All 256 of them."""
    return torch.arange(256).to(torch.uint8).view(dtype)


def compared(expected: torch.Tensor, got: torch.Tensor) -> Finding:
    """What the comparison finds at the format's own tolerance."""
    return low_precision.compare(expected, got, LIMITS[expected.dtype], counted=True)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_step_of_a_format_is_the_distance_of_its_numbers(dtype: torch.dtype) -> None:
    """Relative to the smaller neighbour; next to zero an absolute one."""
    values = dequantized(every_byte(dtype))
    ordered = values[values.isfinite()].unique()
    positive = ordered[ordered > 0]
    step, least, largest = FORMATS[dtype]
    assert (least, largest) == (positive[0].item(), positive[-1].item())
    normal = positive[positive >= least / step]
    assert step == (normal.diff() / normal[:-1]).max().item()


def test_a_byte_of_packed_numbers_holds_two() -> None:
    """The first in the lower half; the last bit of four is the sign."""
    packed = torch.tensor([[0x21, 0xF7]], dtype=torch.uint8).view(PACKED)
    assert [[0.5, 1.0, 6.0, -6.0]] == dequantized(packed).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_out_of_range_becomes_the_largest(dtype: torch.dtype) -> None:
    """On every device alike: torch saturates in some conversions and not in others."""
    largest = FORMATS[dtype].largest
    assert [largest, -largest, 1.5] == quantized(torch.tensor([1e9, -torch.inf, 1.5]), dtype).float().tolist()


@pytest.mark.parametrize("dtype", FORMATS)
def test_equal_tensors_are_those_of_equal_bits(dtype: torch.dtype) -> None:
    """Torch itself compares none of them."""
    one = every_byte(dtype).view(16, 16)
    assert same_values(one, one.clone())
    assert not same_values(one, one.t())


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_call_is_recorded_and_made_again(dtype: torch.dtype) -> None:
    """Bit for bit, with its strides, and through the bytes of a record."""
    tensor = every_byte(dtype).view(16, 16).t()
    record = CALL_DECODER.decode(msgspec.msgpack.encode(record_call("t", [tensor, dtype], {})))
    args = rebuild(record, torch.device("cpu")).args
    assert (tensor.shape, tensor.stride(), dtype) == (args[0].shape, args[0].stride(), args[1])
    assert same_values(tensor, args[0])


@pytest.mark.parametrize(("short", "long"), LOW_PRECISION.items())
def test_a_trace_names_a_tensor_of_it(short: str, long: str) -> None:
    """By torch's short name or the long one."""
    assert short == TENSOR_SHORT_NAMES[long]
    for spelling in (short, f"torch.{long}"):
        (tensor,) = parse_call("relu.default", f"((T([4, 8], {spelling}),), {{}})").args
        assert isinstance(tensor, TensorValue)
        assert short == tensor.dtype


@pytest.mark.parametrize("short", LOW_PRECISION)
def test_values_are_generated_in_it(short: str) -> None:
    """Finite ones, of many sizes; scales are positive, and of packed numbers every byte will do."""
    storage = GeneratedStorage(4096, short, (4096,), (1,), 0, fitted(Normal(), short), 7)
    dtype = getattr(torch, LOW_PRECISION[short])
    content = torch.empty(0, dtype=torch.uint8).set_(generate(storage, torch.device("cpu")))
    values = dequantized(content.view(dtype))
    assert bool(values.isfinite().all())
    assert values.unique().numel() > (7 if dtype is SCALES else 14)
    assert bool((values > 0).all()) == (dtype is SCALES)


@pytest.mark.parametrize("dtype", FLOATS)
def test_inputs_get_other_values_of_their_format(dtype: torch.dtype) -> None:
    """Variants and states change them by way of float32; nothing leaves the range."""
    tensor = quantized(torch.randn(64) * FORMATS[dtype].largest / 8, dtype)
    for change in variants.VARIANTS.values():
        changed = variants.varied([tensor], change, torch.Generator().manual_seed(1))
        assert changed is not None
        assert dtype == changed[0].dtype
        assert bool(dequantized(changed[0]).isfinite().all())
    assert not same_values(tensor, perturbed(tensor, torch.Generator().manual_seed(1)))


def test_packed_numbers_and_scales_stay() -> None:
    """Another scale beside the same codes would mean something else."""
    for dtype in (PACKED, SCALES):
        tensor = every_byte(dtype)
        assert variants.varied([tensor], variants.VARIANTS["scaled"], torch.Generator()) is None
        assert same_values(tensor, perturbed(tensor, torch.Generator()))


# ---------------------------------------------------------------- comparison


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_in_another_order_passes(dtype: torch.dtype) -> None:
    """A scale that is multiplied with instead of divided by moves a number in some thousands to its neighbour."""
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    scale = torch.tensor(0.37)
    expected, got = quantized(x / scale, dtype), quantized(x * (1 / scale), dtype)
    assert compared(expected, got).passed


@pytest.mark.parametrize("dtype", FLOATS)
def test_truncation_fails(dtype: torch.dtype) -> None:
    """Every element is within a step of eager's, and half of them are off."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    expected = quantized(x, dtype)
    # Below the least number is zero, whose code with a sign is no number in some formats.
    beyond = (dequantized(expected).abs() > x.abs()) & (dequantized(expected).abs() > FORMATS[dtype].least)
    lower = (expected.view(torch.uint8) - beyond.to(torch.uint8)).view(dtype)
    finding = compared(expected, lower)
    assert not finding.passed
    assert "are a step of" in str(finding.detail)


def test_two_steps_fail_wherever_they_are() -> None:
    """One element is enough."""
    expected = quantized(torch.randn(4096, generator=torch.Generator().manual_seed(0)), torch.float8_e4m3fn)
    got = expected.clone()
    got.view(torch.uint8)[17] += 2
    assert "1 of 4096 elements are" in str(compared(expected, got).detail)


def test_packed_results_are_compared_number_by_number() -> None:
    """A byte with another lower half has one wrong number, not two."""
    expected = torch.randint(256, (64, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).view(PACKED)
    assert compared(expected, expected.clone()).passed
    got = expected.clone()
    got.view(torch.uint8)[0, 0] = 0x17
    expected.view(torch.uint8)[0, 0] = 0x15
    finding = compared(expected, got)
    assert not finding.passed
    assert finding.figures is not None
    assert (1, 4096) == (finding.figures.mismatched, finding.figures.elements)
    swapped = (expected.view(torch.uint8) >> 4 | expected.view(torch.uint8) << 4).view(PACKED)
    assert not compared(expected, swapped).passed


def test_a_step_is_counted_in_numbers_of_the_format() -> None:
    """From 1 to 2 there are two in E2M1, though a relative and an absolute tolerance of a half add up to that."""
    expected, got = (torch.tensor([code] * 4, dtype=torch.uint8).view(PACKED) for code in (0x22, 0x24))
    assert "4 of 8 elements are more than a step of float4_e2m1fn_x2 off" in compared(expected, got).detail


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_scale_that_is_off_by_a_hundredth_fails(dtype: torch.dtype) -> None:
    """Nobody rounds so on the way; one rounding to bfloat16 passes."""
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    assert compared(quantized(x, dtype), quantized(x.bfloat16(), dtype)).passed
    assert not compared(quantized(x, dtype), quantized(x * 1.01, dtype)).passed


def test_scales_of_blocks_have_one_right_answer() -> None:
    """The next power of two beside codes for this one is wrong by a factor of two."""
    expected = torch.full((8,), 127, dtype=torch.uint8).view(SCALES)
    assert compared(expected, expected.clone()).passed
    assert not compared(expected, torch.full((8,), 128, dtype=torch.uint8).view(SCALES)).passed


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_nan_meets_a_nan(dtype: torch.dtype) -> None:
    """And no number."""
    expected = torch.tensor([1.0, torch.nan]).to(dtype)
    assert compared(expected, expected.clone()).passed
    assert not compared(expected, torch.tensor([1.0, 1.0]).to(dtype)).passed


def test_a_copy_is_exact() -> None:
    """An op that rounds nothing has one right answer in these formats too."""
    x = quantized(torch.randn(64, generator=torch.Generator().manual_seed(0)), torch.float8_e4m3fn)
    assert judge(aten.clone.default, (x,), x.clone()).passed
    other = x.clone()
    other.view(torch.uint8)[3] ^= 1
    assert not judge(aten.clone.default, (x,), other).passed


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_trivial_answer_is_told_from_a_right_one(dtype: torch.dtype) -> None:
    """Void problems are found by the same tolerance."""
    x = quantized(torch.randn(64, generator=torch.Generator().manual_seed(0)), dtype)
    assert is_within(x, x.clone(), "strict")
    assert not is_within(x, torch.zeros_like(x), "strict")


# ---------------------------------------------------------------- scaled products


def _operands(scale_a: tuple[int, ...], scale_b: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    a, b = (quantized(torch.randn(size, 512, generator=generator), torch.float8_e4m3fn) for size in (32, 48))
    scales = (torch.rand(shape, generator=generator) + 0.5 for shape in (scale_a, scale_b))
    return (a, b.t(), *scales)


@pytest.mark.parametrize("scales", [((), ()), ((32, 1), (1, 48))], ids=["one scale", "rows"])
def test_scaled_products_are_judged_beside_float64(scales: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Another order of adding up passes in float32; a product that was rounded to bfloat16 does not."""
    a, b, scale_a, scale_b = _operands(*scales)
    args = (a, b, scale_a, scale_b)
    halves = [a[:, part].float() @ b[part].float() for part in (slice(256), slice(256, 512))]
    exact = sum(halves) * scale_a * scale_b
    rounded = exact.bfloat16().float()
    call = call_of(aten._scaled_mm.default, *args, out_dtype=torch.float32)
    assert call.schema.packet == "_scaled_mm"
    assert judge(aten._scaled_mm.default, args, exact, out_dtype=torch.float32).passed
    assert not judge(aten._scaled_mm.default, args, rounded, out_dtype=torch.float32).passed


def test_records_have_names_for_all_of_them() -> None:
    """The text of a case shows them."""
    tensor = torch.zeros(2, 4, dtype=torch.uint8).view(PACKED)
    record: CallRecord = record_call("t", [tensor], {})
    assert "f4e2m1fnx2" in describe(record)
