"""Shipped kernels in formats of 8 bits and fewer: the numbers of the problems' Models, and of torch's conversions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.unit.kernels.against_eager import FOLDER, eager, kernel, module_of, small_tiles, tiles_of_a_device, values
from torch.utils._pytree import tree_leaves

from opsmith.aten.low_precision import FORMATS, PACKED, dequantized, is_low
from opsmith.backends import manifest
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.evaluation.criteria.steps import steps_off
from opsmith.kernels.low_precision import cached_attention, formats, quantization, scaled_products
from opsmith.tasks.problem_module import import_problem

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
PROBLEMS = {task: file for task, file in problem_files(SHIPPED_PROBLEMS).items() if task.startswith("low_precision/")}
MODULES = manifest.read(FOLDER).modules
NAN, INF = float("nan"), float("inf")

pytestmark = pytest.mark.usefixtures("_quiet")


@pytest.fixture
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


@functools.cache
def problem(name: str) -> Any:
    """The module of a problem by the end of its name, with small sizes."""
    (file,) = [file for task, file in PROBLEMS.items() if task.endswith(f"_{name}")]
    module = import_problem(file)
    vars(module).update(module.SMALL)
    return module


def both(name: str, *inputs: Any, init: tuple[Any, ...] | None = None) -> tuple[list[Any], list[Any]]:
    """The results of a problem's Model, and those of the class that the manifest names for it, in the same state."""
    (entry,) = [entry.entry for task, entry in MODULES.items() if task.endswith(f"_{name}")]
    assert entry is not None
    file, _, made = entry.partition(":")
    arguments = problem(name).get_init_inputs() if init is None else init
    torch.manual_seed(1)
    model, ours = problem(name).Model(*arguments), getattr(module_of(file), made)(*arguments)
    ours.load_state_dict(model.state_dict())
    with torch.no_grad():
        return tree_leaves(model(*inputs)), tree_leaves(ours(*inputs))


def assert_same(expected: torch.Tensor, got: torch.Tensor) -> None:
    """The same numbers of a narrow format, other results but for a rounding; NaN where there is NaN; and layouts."""
    assert (expected.dtype, expected.shape, expected.stride()) == (got.dtype, got.shape, got.stride())
    if is_low(expected):
        assert 0 == torch.count_nonzero(steps_off(expected, got))
    else:
        torch.testing.assert_close(got, expected, equal_nan=True)


def assert_as_model(name: str, *inputs: Any, init: tuple[Any, ...] | None = None) -> None:
    """Every result."""
    for expected, got in zip(*both(name, *inputs, init=init), strict=True):
        assert_same(expected, got)


# ---------------------------------------------------------------- conversions


@triton.jit  # type: ignore[untyped-decorator]
def _to_bytes(out_ptr: tl.tensor, x_ptr: tl.tensor, element: tl.constexpr, count: tl.constexpr) -> None:
    i = tl.arange(0, count)
    x = tl.load(x_ptr + i)
    code = formats.to_float4(x).to(tl.uint8) if element is None else formats.to_float8(x, element)
    tl.store(out_ptr + i, code)


@triton.jit  # type: ignore[untyped-decorator]
def _from_bytes(out_ptr: tl.tensor, x_ptr: tl.tensor, element: tl.constexpr, count: tl.constexpr) -> None:
    i = tl.arange(0, count)
    byte = tl.load(x_ptr + i)
    if element is None:
        y = formats.from_float4(byte)
    elif element == "E8M0":
        y = formats.from_exponent(byte)
    else:
        y = formats.from_float8(formats.as_float8(byte, element))
    tl.store(out_ptr + i, y)


@pytest.mark.parametrize(("dtype", "element"), [(E4M3, "E4M3"), (E5M2, "E5M2")])
def test_a_number_is_rounded_to_the_nearest_of_a_format(dtype: torch.dtype, element: str) -> None:
    """Ties go to the even one, numbers that are subnormal there included; NaN stays, the largest is not exceeded."""
    numbers = torch.arange(256).to(torch.uint8).view(dtype).float()
    numbers = numbers[numbers.isfinite()].unique()
    ties = (numbers[1:] + numbers[:-1]) / 2
    near = [torch.nextafter(ties, torch.full_like(ties, towards)) for towards in (-INF, INF)]
    x = torch.cat([numbers, ties, *near, torch.tensor([-0.0, NAN]), values(2000, scale=3.0), values(500, scale=1e-3)])
    x = torch.nn.functional.pad(x, (0, 4096 - x.numel()))
    got = torch.empty(4096, dtype=torch.uint8)
    _to_bytes[(1,)](got, x, element=element, count=4096)
    assert_same(x.to(dtype), got.view(dtype))
    assert torch.equal(x.signbit() & ~x.isnan(), (got > 127) & ~x.isnan())
    beyond = torch.tensor([1e9, -1e9, INF, -INF])
    got = torch.empty(4, dtype=torch.uint8)
    _to_bytes[(1,)](got, beyond, element=element, count=4)
    assert got.view(dtype).float().tolist() == [each * FORMATS[dtype].largest for each in (1, -1, 1, -1)]


@pytest.mark.parametrize(("dtype", "element"), [(E4M3, "E4M3"), (E5M2, "E5M2"), (None, "E8M0")])
def test_every_byte_is_its_number(dtype: torch.dtype | None, element: str) -> None:
    """Also those that stand for infinity and NaN; E8M0 for its powers of two."""
    byte = torch.arange(256).to(torch.uint8)
    got = torch.empty(256)
    _from_bytes[(1,)](got, byte, element=element, count=256)
    right = byte.view(torch.float8_e8m0fnu if dtype is None else dtype).float()
    torch.testing.assert_close(got, right, rtol=0, atol=0, equal_nan=True)


def test_four_bits_are_rounded_as_the_problems_say_and_come_back() -> None:
    """Every tie, both sides of it, NaN, and what is out of range."""
    code = torch.arange(16).to(torch.uint8)
    numbers = torch.empty(16)
    _from_bytes[(1,)](numbers, code, element=None, count=16)
    assert torch.equal(numbers, dequantized((code | (code << 4)).view(PACKED))[::2])
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0])
    x = torch.cat([ties, *(torch.nextafter(ties, torch.full_like(ties, to)) for to in (0.0, 9.0))])
    x = torch.cat([x, -x, torch.tensor([0.0, -0.0, NAN, INF, -INF, 1e-40]), values(196, scale=3.0)])[:256]
    got = torch.empty(256, dtype=torch.uint8)
    _to_bytes[(1,)](got, x, element=None, count=256)
    right = problem("MXFP4Quantize").packed(torch.stack([x, torch.zeros_like(x)], dim=-1)).view(torch.uint8)
    assert torch.equal(right.flatten() & 15, got)


# ---------------------------------------------------------------- problems


def test_the_manifest_names_a_class_for_every_problem() -> None:
    """None is forgotten, and none is named that there is not."""
    assert set(PROBLEMS) == set(MODULES)


@pytest.mark.parametrize("task", PROBLEMS)
def test_a_problem_has_the_results_of_its_model(task: str) -> None:
    """Numbers in 8 bits and fewer are the same, one by one."""
    name = task.rpartition("_")[2]
    torch.manual_seed(1)
    assert_as_model(name, *problem(name).get_inputs())


# ---------------------------------------------------------------- quantising


def awkward(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Rows with a NaN, an infinity, of zeros, of tiny numbers and of one number, among others."""
    x = values(*shape, dtype=dtype)
    x[0, 1] = NAN
    x[1, 0] = INF
    x[2] = 0.0
    x[3] = 1e-30
    x[4] = -0.375
    x[5, 2] = -INF
    return x


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_scales_and_numbers_of_groups_are_eagers(dtype: torch.dtype) -> None:
    """Of rows and groups of any width, of every type, and of special numbers."""
    for x in (awkward(9, 300, dtype=dtype), values(3, 2, dtype=dtype)):
        assert_as_model("TokenQuantize", x)
    assert_as_model("GroupQuantize", awkward(7, 288, dtype=dtype), init=(96,))
    assert_as_model("GroupQuantize", awkward(6, 21, dtype=dtype), init=(3,))


@pytest.mark.parametrize("name", ["TokenQuantize", "GroupQuantize", "MXFP8Quantize", "MXFP4Quantize", "NVFP4Quantize"])
def test_inputs_of_any_layout_are_quantised(name: str) -> None:
    """A transposed one, and every other column; results are row-major."""
    init = tuple(problem(name).get_init_inputs())
    for x in (values(128, 24, dtype=torch.bfloat16).t(), values(5, 512, dtype=torch.bfloat16)[:, ::2]):
        got = both(name, x, init=init)[1]
        for expected, ours in zip(both(name, x.contiguous(), init=init)[0], got, strict=True):
            assert_same(expected, ours)


def test_rows_that_registers_do_not_hold_are_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or three times, to be normalised; the last step is no whole one."""
    small_tiles(monkeypatch, 64)
    for x in (awkward(6, 300), values(3, 256, dtype=torch.bfloat16)):
        assert_as_model("TokenQuantize", x)
        assert_as_model("SwiGLUQuantize", x, init=(x.shape[1] // 2,))
    assert_as_model("NormQuantize", values(3, 300, dtype=torch.bfloat16), init=(300,))


@pytest.mark.parametrize("name", ["MXFP8Quantize", "MXFP4Quantize"])
def test_powers_of_two_are_eagers(name: str) -> None:
    """Also where the largest of a block is the largest number times a power of two, or a rounding off."""
    largest = 448.0 if name == "MXFP8Quantize" else 6.0
    x = torch.zeros(7, 64, dtype=torch.bfloat16)
    x[:, ::2] = values(7, 32, dtype=torch.bfloat16, scale=1e-4)
    for row, (factor, power) in enumerate([(1, 0), (1, -4), (1.01, 0), (0.99, 3), (1, 100), (1, -100), (1.5, 0)]):
        x[row, 3] = x[row, 35] = largest * factor * 2.0**power
    assert_as_model(name, x)


@pytest.mark.parametrize("name", ["MXFP8Quantize", "MXFP4Quantize"])
def test_blocks_without_a_scale_are_eagers(name: str) -> None:
    """Of zeros, whose logarithm is infinite, and with a NaN; of an infinite block only the numbers are defined."""
    x = values(4, 64, dtype=torch.bfloat16)
    x[0, :32], x[1, 40] = 0.0, NAN
    assert_as_model(name, x)
    x[2, 5] = INF
    for_model, ours = both(name, x)
    assert_same(for_model[0], ours[0])


@pytest.mark.parametrize("special", [0.0, NAN, INF, 1e-30])
def test_the_scale_of_the_whole_is_eagers(special: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of the parts that several programs have found; zeros alone have no scale, and one NaN leaves none."""
    small_tiles(monkeypatch, 256)
    monkeypatch.setattr(quantization, "multiprocessors", lambda _device: 1)
    x = values(20, 160, dtype=torch.bfloat16)
    x[7, 16:48] = special
    assert_as_model("NVFP4Quantize", x)
    assert_as_model("NVFP4Quantize", torch.full((3, 32), special, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("columns", [129, 1024, 1536])
def test_a_scale_of_earlier_steps_may_be_too_large(
    columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers out of range become the largest, NaN stays and is the largest of all; parts of several programs."""
    small_tiles(monkeypatch, 256)
    monkeypatch.setattr(quantization, "multiprocessors", lambda _device: 1)
    x = values(7, columns, dtype=dtype)
    assert_as_model("GradientQuantize", x, torch.tensor(20_000.0))
    x[2, 5], x[3, 0] = INF, -INF
    assert_as_model("GradientQuantize", x, torch.tensor(3.0))
    x[6, -1] = NAN
    assert_as_model("GradientQuantize", x, torch.tensor(0.5))


def test_a_normed_row_is_quantised() -> None:
    """Of any width, also one of zeros; weights of the norm are no ones."""
    x = values(6, 300, dtype=torch.bfloat16)
    x[2] = 0.0
    x[3, 4] = NAN
    assert_as_model("NormQuantize", x, init=(300,))
    turned = values(300, 4, dtype=torch.float16).t()
    expected, got = (
        both("NormQuantize", turned.contiguous(), init=(300,))[0],
        both("NormQuantize", turned, init=(300,))[1],
    )
    for right, ours in zip(expected, got, strict=True):
        assert_same(right, ours)


def test_a_gated_activation_is_quantised() -> None:
    """Gates lie before what they gate, in rows of any layout; groups of which none fills a tile."""
    x = values(5, 2 * 72, dtype=torch.bfloat16)
    assert_as_model("SwiGLUQuantize", x, init=(24,))
    assert_as_model("SwiGLUQuantize", values(5, 4 * 72, dtype=torch.bfloat16)[:, ::2], init=(24,))


def test_no_rows_have_no_scales() -> None:
    """Nothing is launched; a tensor without elements has no largest one, as eager says."""
    x = torch.empty(0, 64, dtype=torch.bfloat16)
    assert [(0, 64), (0, 2)] == [tuple(each.shape) for each in quantization.quantize_groups(x, 32)]
    assert [(0, 32), (0, 2)] == [tuple(each.shape) for each in quantization.microscale(x, 32, packs=True)]
    for refused in (lambda: quantization.nvfp4(x, 16), lambda: quantization.quantize_delayed(x, torch.tensor(1.0))):
        with pytest.raises(ValueError, match=r"no largest|not quantised"):
            refused()


@pytest.mark.parametrize("width", [0, 7])
def test_groups_that_do_not_fit_are_refused(width: int) -> None:
    """No element belongs to half a group."""
    with pytest.raises(ValueError, match="have no groups"):
        quantization.quantize_groups(values(2, 32, dtype=torch.bfloat16), width)


def test_what_is_not_quantised_is_declined() -> None:
    """Numbers that are narrow already, integers, three dimensions, blocks that are no powers of two."""
    for x in (torch.zeros(2, 32, dtype=E4M3), torch.zeros(2, 32, dtype=torch.int32), torch.zeros(2, 2, 32)):
        with pytest.raises(NotImplementedError):
            quantization.quantize_groups(x, 32)
    with pytest.raises(NotImplementedError):
        quantization.microscale(torch.zeros(2, 48), 24, packs=True)


# ---------------------------------------------------------------- dequantising


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("size", [8, 24, 128])
def test_every_number_times_the_scale_of_its_block(dtype: torch.dtype, size: int) -> None:
    """All 256 of them, NaN included; blocks of any size, and a weight in any layout."""
    weight = torch.arange(6 * size * size).to(torch.uint8).view(3 * size, 2 * size).view(dtype)
    scale = values(3, 2).abs()
    assert_as_model("BlockDequantize", weight, scale, init=(size,))
    (expected,), (got,) = both("BlockDequantize", weight.t(), scale.t(), init=(size,))
    assert_same(expected.contiguous(), got)


def test_the_byte_that_is_no_zero_elsewhere_becomes_one() -> None:
    """Others keep their bits; in tiles that rows and columns do not fill."""
    weight = torch.arange(3 * 700).to(torch.uint8).view(3, 700).view(E4M3)
    assert_as_model("ToFnuz", weight, values(3, 1).abs())
    assert_as_model("ToFnuz", weight.t(), values(700, 1).abs())


# ---------------------------------------------------------------- products


def narrow(*shape: int, dtype: torch.dtype = E4M3, seed: int = 0) -> torch.Tensor:
    """Reproducible numbers in 8 bits."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("rows_apart", [False, True])
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16, torch.float32, None])
def test_a_scaled_product_is_eagers(out_dtype: torch.dtype | None, *, rows_apart: bool) -> None:
    """Sizes that no tile divides, with a bias and without, rounded to every type."""
    a, b = narrow(37, 80), narrow(48, 80, seed=1).t()
    scales = torch.tensor(0.7), torch.tensor([1.3])
    if rows_apart:
        scales = values(37, 1).abs(), values(48, 1).abs().t()
    for bias in (None, values(48, dtype=torch.bfloat16)):
        kwargs = {"bias": bias, "out_dtype": out_dtype}
        expected = eager("_scaled_mm.default")(a, b, *scales, **kwargs)
        got = kernel("_scaled_mm.default")(a, b, *scales, **kwargs)
        if out_dtype is None:
            assert (expected.dtype, expected.shape) == (got.dtype, got.shape)
            assert int((steps_off(expected, got) > 0).sum()) <= 2
        else:
            step = max(1e-5, torch.finfo(out_dtype).eps)
            torch.testing.assert_close(got, expected, rtol=step, atol=10 * step)


@pytest.mark.parametrize("types", [(E4M3, E5M2), (E5M2, E4M3)])
def test_two_formats_are_multiplied_in_any_layout(types: tuple[torch.dtype, torch.dtype]) -> None:
    """Gradients are in E5M2; factors that a tensor core's library would refuse for their strides are served."""
    one = torch.tensor(1.0)
    a, b = narrow(64, 16, dtype=types[0]).t(), narrow(64, 32, dtype=types[1])
    got = kernel("_scaled_mm.default")(a, b, one, one, out_dtype=torch.float32)
    torch.testing.assert_close(got, a.float() @ b.float())


def test_infinity_and_nan_reach_the_result() -> None:
    """Of a row and a column alone."""
    a, b, one = narrow(16, 32), narrow(32, 16, dtype=E5M2), torch.tensor(1.0)
    a.view(torch.uint8)[2, 3] = 0x7F
    b.view(torch.uint8)[5, 7] = 0x7C
    got = kernel("_scaled_mm.default")(a, b, one, one, out_dtype=torch.float32)
    torch.testing.assert_close(got, a.float() @ b.float(), equal_nan=True)


def test_what_is_not_multiplied_is_declined() -> None:
    """Scales of results and of blocks, types that are not narrow."""
    a, b, one = narrow(32, 128), narrow(32, 128).t(), torch.tensor(1.0)
    with pytest.raises(NotImplementedError):
        kernel("_scaled_mm.default")(a, b, one, one, scale_result=one)
    with pytest.raises(NotImplementedError):
        kernel("_scaled_mm.default")(a, b, torch.ones(32, 4), torch.ones(4, 32))
    with pytest.raises(NotImplementedError):
        kernel("_scaled_mm.default")(a.bfloat16(), b.bfloat16(), one, one, out_dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="no factors"):
        kernel("_scaled_mm.default")(a, b.t(), one, one)


def test_large_tiles_are_right_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a device gets where it has programs enough."""
    tiles_of_a_device(monkeypatch)
    assert scaled_products.LARGE == scaled_products.tile_of(1, 300, 300, torch.device("cpu"))
    monkeypatch.undo()
    a, b = narrow(130, 100), narrow(50, 100, seed=1).t()
    scales = values(130, 1).abs(), values(50, 1).abs().t()
    got = kernel("_scaled_mm.default")(a, b, *scales, out_dtype=torch.bfloat16)
    torch.testing.assert_close(got, eager("_scaled_mm.default")(a, b, *scales, out_dtype=torch.bfloat16))


@pytest.mark.parametrize(("rows", "block"), [(5, 128), (70, 32)])
def test_blocks_of_terms_have_scales_of_their_own(rows: int, block: int) -> None:
    """Few rows and more than a tile has, blocks of both sizes."""
    x, weight = narrow(rows, 3 * block), narrow(2 * block, 3 * block, seed=1)
    scales = values(rows, 3).abs(), values(2, 3).abs()
    assert_as_model("BlockScaledProduct", x, scales[0], weight, scales[1], init=(block,))


def test_experts_of_any_size_are_multiplied() -> None:
    """Each with rows and channels of its own scales."""
    x, weight = narrow(3, 21, 72), narrow(3, 40, 72, seed=1)
    assert_as_model("GroupedProduct", x, weight, values(3, 21, 1).abs(), values(3, 40, 1).abs())


@pytest.mark.parametrize("rows", [1, 37, 140])
@pytest.mark.parametrize("name", ["MXFP8Product", "MXFP4Linear", "NVFP4Product"])
def test_microscaled_products_of_any_size(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The depth is whole blocks, of which the last step has only some."""
    module = problem(name)
    for size, value in {"ROWS": rows, "TOKENS": rows, "COLUMNS": 50, "WIDTH": 50, "DEPTH": 5 * module.BLOCK}.items():
        monkeypatch.setattr(module, size, value, raising=False)
    torch.manual_seed(rows)
    assert_as_model(name, *module.get_inputs())


def test_rows_in_groups_have_scales_of_their_own() -> None:
    """One group is empty, one a row long, and rows behind the last one are left alone; or groups are a batch."""
    a, b = narrow(60, 48), narrow(4, 40, 48, seed=1).mT
    scale_a, scale_b = values(60).abs(), values(4, 40).abs()
    ends = [3, 3, 49, 50]
    op = kernel("_scaled_grouped_mm.default")
    got = op(a, b, scale_a, scale_b, torch.tensor(ends, dtype=torch.int32), out_dtype=torch.bfloat16)
    assert (60, 40) == got.shape
    for group, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        right = (a[begin:end].float() @ b[group].float()) * scale_a[begin:end, None] * scale_b[group]
        torch.testing.assert_close(got[begin:end], right.bfloat16())
    batch = narrow(4, 9, 48, seed=2)
    right = (batch.float() @ b.float()) * values(4, 9).abs().unsqueeze(-1) * scale_b.unsqueeze(1)
    torch.testing.assert_close(op(batch, b, values(4, 9).abs(), scale_b), right.bfloat16())
    with pytest.raises(NotImplementedError):
        op(a, b[0], scale_a, scale_b[0], torch.tensor(ends, dtype=torch.int32))


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("length", [1, 45, 200])
def test_a_new_token_sees_all_keys(length: int, monkeypatch: pytest.MonkeyPatch, *, splits: bool) -> None:
    """In one program a head or in several, the last of which has fewer keys."""
    monkeypatch.setattr(cached_attention, "TILE", 512)
    if splits:
        monkeypatch.setattr(cached_attention, "multiprocessors", lambda _device: 132)
        monkeypatch.setattr(cached_attention, "FEWEST_TILES", 1)
    query = values(2, 3, 1, 24, dtype=torch.bfloat16)
    keys, others = narrow(2, 3, length, 24), narrow(2, 3, length, 24, seed=1)
    scales = values(3, 1, 1).abs(), values(3, 1, 1).abs() + 1
    assert_as_model("CachedAttention", query, keys, others, *scales)
    turned = keys.transpose(1, 2).contiguous().transpose(1, 2)
    assert_as_model("CachedAttention", query, turned, others, *scales)
    if splits and length == 200:
        assert 1 < cached_attention.splits_of(6, 13, torch.device("cpu"))


def test_a_nan_among_keys_or_values_reaches_its_head() -> None:
    """And no other one."""
    query = values(1, 2, 1, 16, dtype=torch.bfloat16)
    keys, others = narrow(1, 2, 20, 16), narrow(1, 2, 20, 16, seed=1)
    keys.view(torch.uint8)[0, 0, 7, 3] = 0x7F
    scales = torch.ones(2, 1, 1), torch.ones(2, 1, 1)
    assert_as_model("CachedAttention", query, keys, others, *scales)
    others.view(torch.uint8)[0, 1, 7, 3] = 0x7F
    assert_as_model("CachedAttention", query, narrow(1, 2, 20, 16), others, *scales)
